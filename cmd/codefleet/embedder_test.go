package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// embedderKey is the API key that startEmbedder's endpoint expects. Like real endpoints, it repeats the key in errors.
const embedderKey = "sk-embedder-of-the-test"

// startEmbedder serves embeddings in OpenAI's protocol, and writes the settings for it. It appends the embedded texts
// to the file "embedded", each on its own line. If the file "mode" contains "down", requests fail; if it contains
// "hang", they get no response.
func startEmbedder(ts *testscript.TestScript, _ bool, _ []string) {
	embedded, mode := ts.MkAbs("embedded"), ts.MkAbs("mode")
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Input          []string
			Model          string
			Dimensions     int
			EncodingFormat string `json:"encoding_format"`
		}
		err := json.NewDecoder(r.Body).Decode(&request)
		if err != nil || r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer "+embedderKey ||
			request.Model != "m" || request.Dimensions != embedderDimensions || request.EncodingFormat != "float" {
			http.Error(w, fmt.Sprintf("%s: %+v, %v", r.URL, request, err), http.StatusBadRequest)
			return
		}
		switch data, _ := os.ReadFile(mode); strings.TrimSpace(string(data)) {
		case "down":
			http.Error(w, `{"error": {"message": "overloaded, Bearer `+embedderKey+`"}}`, http.StatusServiceUnavailable)
			return
		case "hang":
			<-r.Context().Done()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		var data []any
		for i, text := range request.Input {
			data = append(data, map[string]any{"index": i, "embedding": bagOfWords(text)})
		}
		if err := appendLines(embedded, request.Input); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	ts.Defer(server.Close)
	settings := fmt.Sprintf("embeddings: {model: m, dimensions: %d, base_url: %s/v1, api_key: %s, deadline: 4s}\n",
		embedderDimensions, server.URL, embedderKey)
	ts.Check(os.WriteFile(ts.MkAbs("config.yaml"), []byte(settings), 0o600))
}

const embedderDimensions = 64

// bagOfWords returns a vector that counts the words of a text. "parasol" counts as "weather".
func bagOfWords(text string) []float64 {
	vector := make([]float64, embedderDimensions)
	vector[0] = 0.1 // never the zero vector
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }) {
		if word == "parasol" {
			word = "weather"
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(word))
		vector[h.Sum32()%embedderDimensions]++
	}
	return vector
}

// appendLines appends texts to a file, each quoted on its own line.
func appendLines(path string, texts []string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, text := range texts {
		if _, err := fmt.Fprintf(f, "%q\n", text); err != nil {
			return err
		}
	}
	return nil
}
