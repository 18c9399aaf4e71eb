package selection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// OpenAIOptions name an embedding endpoint. With Deployment it is an Azure OpenAI resource, else OpenAI itself or
// any server that speaks its protocol. Nothing is read from the environment.
type OpenAIOptions struct {
	BaseURL    string // default OpenAI's; for Azure the resource's endpoint
	APIKey     string
	Model      string // default text-embedding-3-small
	Dimensions int    // 0: the model's own; 512 is enough
	Deployment string // Azure
	APIVersion string // Azure; default 2024-10-21
	Client     *http.Client
}

// OpenAIEmbedder is an Embedder over HTTP. It does not retry: the caller's deadline is shorter than a retry.
type OpenAIEmbedder struct {
	service openai.EmbeddingService
	opts    OpenAIOptions
}

// maxInputs is the protocol's limit of texts a request, maxInputBytes a bound below its 8,192 tokens a text.
const (
	maxInputs     = 2048
	maxInputBytes = 16 << 10
)

// NewOpenAIEmbedder checks the options; it does not call.
func NewOpenAIEmbedder(o OpenAIOptions) (*OpenAIEmbedder, error) {
	if o.Model == "" {
		o.Model = "text-embedding-3-small"
	}
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	settings := []option.RequestOption{option.WithHTTPClient(o.Client), option.WithMaxRetries(0), option.WithEnvironmentProduction()}
	base := o.BaseURL
	if o.Deployment != "" {
		if o.APIVersion == "" {
			o.APIVersion = "2024-10-21"
		}
		base = strings.TrimSuffix(base, "/") + "/openai/deployments/" + url.PathEscape(o.Deployment) + "/"
		settings = append(settings, option.WithQuery("api-version", o.APIVersion), option.WithHeader("Api-Key", o.APIKey))
	} else if o.APIKey != "" {
		settings = append(settings, option.WithAPIKey(o.APIKey))
	}
	if base != "" {
		if u, err := url.Parse(base); err != nil || u.Host == "" {
			return nil, fmt.Errorf("embedding endpoint %q is not a URL", o.BaseURL)
		}
		settings = append(settings, option.WithBaseURL(base))
	}
	return &OpenAIEmbedder{service: openai.NewEmbeddingService(settings...), opts: o}, nil
}

// Model implements Embedder. The endpoint is part of the name: the same model name may mean another model elsewhere.
func (e *OpenAIEmbedder) Model() (string, int) {
	return strings.Join([]string{e.opts.BaseURL, e.opts.Deployment, e.opts.Model}, "|"), e.opts.Dimensions
}

// Embed implements Embedder.
func (e *OpenAIEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for from := 0; from < len(texts); from += maxInputs {
		to := min(from+maxInputs, len(texts))
		if err := e.embed(ctx, texts[from:to], out[from:to]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *OpenAIEmbedder) embed(ctx context.Context, texts []string, out [][]float32) error {
	input := make([]string, len(texts))
	for i, t := range texts {
		input[i] = strings.ToValidUTF8(t[:min(len(t), maxInputBytes)], "")
		if input[i] == "" {
			input[i] = " " // the protocol refuses empty texts
		}
	}
	params := openai.EmbeddingNewParams{
		Input:          openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: input},
		Model:          e.opts.Model,
		EncodingFormat: openai.EmbeddingNewParamsEncodingFormatFloat,
	}
	if e.opts.Dimensions > 0 {
		params.Dimensions = openai.Int(int64(e.opts.Dimensions))
	}
	response, err := e.service.New(ctx, params)
	if err != nil {
		return endpointError(err)
	}
	for _, d := range response.Data {
		if d.Index < 0 || int(d.Index) >= len(out) || out[d.Index] != nil {
			return fmt.Errorf("endpoint answered with a vector for text %d of %d", d.Index, len(out))
		}
		v := make([]float32, len(d.Embedding))
		for i, x := range d.Embedding {
			v[i] = float32(x)
		}
		out[d.Index] = v
	}
	if len(response.Data) != len(out) {
		return fmt.Errorf("endpoint answered with %d vectors for %d texts", len(response.Data), len(out))
	}
	return nil
}

// endpointError keeps the status and drops what could hold a URL with a key in it.
func endpointError(err error) error {
	if api, ok := errors.AsType[*openai.Error](err); ok {
		return fmt.Errorf("endpoint answered %d %s", api.StatusCode, http.StatusText(api.StatusCode))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
