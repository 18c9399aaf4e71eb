package selection

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/codefleet/codefleet/internal/openai"
)

// OpenAIOptions describe an embedding endpoint. With a Deployment it is an Azure OpenAI resource, otherwise OpenAI
// itself or any server that implements its protocol. The environment is not read.
type OpenAIOptions struct {
	BaseURL    string // the default is OpenAI's; for Azure the resource's endpoint
	APIKey     string
	Model      string // the default is text-embedding-3-small
	Dimensions int    // 0 means the model's default; 512 is enough
	Deployment string // only for Azure
	APIVersion string // only for Azure; the default is 2024-10-21
	Client     *http.Client
}

// OpenAIEmbedder is an Embedder over HTTP. It does not retry, because the caller's deadline is too short for that.
type OpenAIEmbedder struct {
	client *openai.Client
	opts   OpenAIOptions
	limit  atomic.Int64 // maximum size of a text, in bytes; it decreases when the model refuses a text as too long
}

const (
	maxInputs     = 2048     // the protocol's limit of texts in one request
	maxInputBytes = 16 << 10 // keeps a text below the protocol's limit of 8,192 tokens
	minInputBytes = 256      // a model that refuses so short a text is useless
)

// NewOpenAIEmbedder checks the options. It sends no request.
func NewOpenAIEmbedder(o OpenAIOptions) (*OpenAIEmbedder, error) {
	o.Model = cmp.Or(o.Model, "text-embedding-3-small")
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

// Model implements Embedder. The name contains the endpoint, because different endpoints may use the same name for
// different models.
func (e *OpenAIEmbedder) Model() (string, int) {
	return strings.Join([]string{e.opts.BaseURL, e.opts.Deployment, e.opts.Model}, "|"), e.opts.Dimensions
}

// Embed implements Embedder. Its errors contain neither a URL nor the endpoint's message, which may repeat the key.
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

// embed truncates texts that the endpoint refuses. An endpoint refuses the whole request if one text is too long, and
// does not name the text, so embed bisects the texts. A request that is wrong for another reason fails after about
// twenty attempts.
func (e *OpenAIEmbedder) embed(ctx context.Context, texts []string, limit int64) ([][]float32, error) {
	vectors, err := e.request(ctx, texts, limit)
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
	text := texts[0]
	for size := min(limit, int64(len(text))) / 2; size >= minInputBytes && mayBeTooLong(err); size /= 2 {
		if vectors, err = e.request(ctx, []string{text[:size]}, size); err != nil {
			continue
		}
		if size < e.limit.Load() && e.isTooLong(ctx, text[:size]+text[:size]) {
			e.limit.Store(size)
		}
		return vectors, nil
	}
	return nil, err
}

// isTooLong reports whether the endpoint refuses a text of which it has accepted both halves. If it accepts the text,
// an earlier refusal was not about the length: a content filter has refused a passage, for example.
func (e *OpenAIEmbedder) isTooLong(ctx context.Context, text string) bool {
	_, err := e.request(ctx, []string{text}, int64(len(text)))
	return mayBeTooLong(err)
}

// request embeds the texts, truncated to limit bytes.
func (e *OpenAIEmbedder) request(ctx context.Context, texts []string, limit int64) ([][]float32, error) {
	return e.client.Embed(ctx, openai.EmbeddingRequest{
		Model: e.opts.Model, Input: inputs(texts, int(limit)), Dimensions: e.opts.Dimensions,
	})
}

// mayBeTooLong reports whether the cause of an error may be the length of a text or the number of texts.
func mayBeTooLong(err error) bool {
	failed, ok := errors.AsType[*openai.StatusError](err)
	refusals := []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
	return ok && slices.Contains(refusals, failed.Status)
}

// inputs truncates the texts to limit bytes and makes them valid for the protocol.
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
