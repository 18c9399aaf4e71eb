package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

func appendTo(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// startModel serves chat completions in OpenAI's protocol: each request gets the next file as its response. It appends
// the requests to the file "prompts". After the last file, it responds that the model is unknown.
func startModel(ts *testscript.TestScript, _ bool, files []string) {
	var responses []string
	for _, f := range files {
		responses = append(responses, ts.ReadFile(f))
	}
	prompts := ts.MkAbs("prompts")
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = appendTo(prompts, append(body, '\n'))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/chat/completions") || len(responses) == 0 {
			http.Error(w, `{"error": {"message": "no such model", "code": "model_not_found"}}`, http.StatusNotFound)
			return
		}
		chunk, _ := json.Marshal(map[string]any{
			"choices": []any{
				map[string]any{"index": 0, "delta": map[string]any{"content": responses[0]}, "finish_reason": "stop"},
			},
			"usage": map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
		})
		responses = responses[1:]
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", chunk)
	}))
	ts.Defer(server.Close)
	ts.Setenv("OPENAI_BASE_URL", server.URL+"/v1")
	ts.Setenv("OPENAI_API_KEY", "not-a-key")
}
