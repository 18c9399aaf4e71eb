package selection

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/openai"
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
	client *openai.Client
	opts   OpenAIOptions
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
	client, err := openai.New(openai.Endpoint{BaseURL: o.BaseURL, APIKey: o.APIKey, Deployment: o.Deployment, APIVersion: o.APIVersion, Client: o.Client})
	if err != nil {
		return nil, err
	}
	return &OpenAIEmbedder{client: client, opts: o}, nil
}

// Model implements Embedder. The endpoint is part of the name: the same model name may mean another model elsewhere.
func (e *OpenAIEmbedder) Model() (string, int) {
	return strings.Join([]string{e.opts.BaseURL, e.opts.Deployment, e.opts.Model}, "|"), e.opts.Dimensions
}

// Embed implements Embedder. Its errors hold no URL and none of the endpoint's words: those may repeat the key.
func (e *OpenAIEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for batch := range slices.Chunk(texts, maxInputs) {
		vectors, err := e.client.Embed(ctx, openai.EmbeddingRequest{Model: e.opts.Model, Input: inputs(batch), Dimensions: e.opts.Dimensions})
		if err != nil {
			return nil, err
		}
		out = append(out, vectors...)
	}
	return out, nil
}

// inputs are texts as the protocol takes them.
func inputs(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = strings.ToValidUTF8(t[:min(len(t), maxInputBytes)], "")
		if out[i] == "" {
			out[i] = " " // the protocol refuses empty texts
		}
	}
	return out
}
