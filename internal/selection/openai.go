package selection

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/codefleet/codefleet/internal/openai"
)

// OpenAIOptions name an embedding endpoint. With Deployment it is an Azure OpenAI resource, else OpenAI itself or any
// server that implements its protocol. The environment is not read.
type OpenAIOptions struct {
	BaseURL    string // default OpenAI's; for Azure the resource's endpoint
	APIKey     string
	Model      string // default text-embedding-3-small
	Dimensions int    // 0: the model's default; 512 is enough
	Deployment string // Azure
	APIVersion string // Azure; default 2024-10-21
	Client     *http.Client
}

// OpenAIEmbedder is an Embedder over HTTP. It does not retry: the caller's deadline is too short.
type OpenAIEmbedder struct {
	client *openai.Client
	opts   OpenAIOptions
	limit  atomic.Int64 // bytes of a text that the model is known to accept
}

// maxInputs is the protocol's limit of texts a request; maxInputBytes keeps a text below its limit of 8,192 tokens.
// Other
// servers and models accept less, but no useful model less than minInputBytes.
const (
	maxInputs     = 2048
	maxInputBytes = 16 << 10
	minInputBytes = 256
)

// NewOpenAIEmbedder checks the options; it does not call.
func NewOpenAIEmbedder(o OpenAIOptions) (*OpenAIEmbedder, error) {
	if o.Model == "" {
		o.Model = "text-embedding-3-small"
	}
	client, err := openai.New(openai.Endpoint{
		BaseURL: o.BaseURL, APIKey: o.APIKey, Deployment: o.Deployment, APIVersion: o.APIVersion, Client: o.Client,
	})
	if err != nil {
		return nil, err
	}
	e := &OpenAIEmbedder{client: client, opts: o}
	e.limit.Store(maxInputBytes)
	return e, nil
}

// Model implements Embedder. The endpoint is a part of the name: another one may call another model the same.
func (e *OpenAIEmbedder) Model() (string, int) {
	return strings.Join([]string{e.opts.BaseURL, e.opts.Deployment, e.opts.Model}, "|"), e.opts.Dimensions
}

// Embed implements Embedder. Its errors contain no URL and no text of the endpoint, which may repeat the key.
func (e *OpenAIEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for batch := range slices.Chunk(texts, maxInputs) {
		vectors, err := e.embed(ctx, batch, e.limit.Load())
		if err != nil {
			return nil, err
		}
		out = append(out, vectors...)
	}
	return out, nil
}

// embed shortens texts that the endpoint refuses. One text that is too long for the model makes it refuse the whole
// request without naming the text, so embed bisects. A request that is wrong for another reason fails after some twenty
// tries.
func (e *OpenAIEmbedder) embed(ctx context.Context, texts []string, limit int64) ([][]float32, error) {
	vectors, err := e.client.Embed(ctx, openai.EmbeddingRequest{
		Model: e.opts.Model, Input: inputs(texts, int(limit)), Dimensions: e.opts.Dimensions,
	})
	if err == nil || !mayBeTooLong(err) {
		return vectors, err
	}
	if half := len(texts) / 2; half > 0 {
		first, err := e.embed(ctx, texts[:half], limit)
		if err != nil {
			return nil, err
		}
		rest, err := e.embed(ctx, texts[half:], e.limit.Load())
		return append(first, rest...), err
	}
	shorter := min(limit, int64(len(texts[0]))) / 2
	if shorter < minInputBytes {
		return nil, err
	}
	vectors, err = e.embed(ctx, texts, shorter)
	if err == nil && shorter < e.limit.Load() {
		e.limit.Store(shorter)
	}
	return vectors, err
}

// mayBeTooLong reports whether an error may be about the length of a text or the number of texts.
func mayBeTooLong(err error) bool {
	failed, ok := errors.AsType[*openai.StatusError](err)
	refusals := []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
	return ok && slices.Contains(refusals, failed.Status)
}

// inputs returns valid texts of the protocol, each of at most limit bytes.
func inputs(texts []string, limit int) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = strings.ToValidUTF8(t[:min(len(t), limit)], "")
		if out[i] == "" {
			out[i] = " " // the protocol refuses empty texts
		}
	}
	return out
}
