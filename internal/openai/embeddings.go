package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// maxVector bounds the bytes of one vector on the wire: 4,096 numbers of 20 digits fit.
const maxVector = 128 << 10

// EmbeddingRequest asks for one vector a text. The protocol takes at most 2,048 texts, none of them empty.
type EmbeddingRequest struct {
	Model      string   `json:"model"`
	Input      []string `json:"input"`
	Dimensions int      `json:"dimensions,omitempty"` // 0: the model's own
}

// Embed returns the vectors in the order of the texts. Errors are as in Chat.
func (c *Client) Embed(ctx context.Context, r EmbeddingRequest) ([][]float32, error) {
	request := struct {
		EmbeddingRequest
		Format string `json:"encoding_format"`
	}{r, "float"}
	body, err := c.post(ctx, "embeddings", "application/json", request, int64(len(r.Input)+1)*maxVector)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the vectors: %w", err)
	}
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("read the vectors: %w", err)
	}
	vectors := make([][]float32, len(r.Input))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(vectors) || vectors[d.Index] != nil {
			return nil, fmt.Errorf("endpoint answered with a vector for text %d of %d", d.Index, len(vectors))
		}
		vectors[d.Index] = d.Embedding
	}
	if len(answer.Data) != len(vectors) {
		return nil, fmt.Errorf("endpoint answered with %d vectors for %d texts", len(answer.Data), len(vectors))
	}
	return vectors, nil
}
