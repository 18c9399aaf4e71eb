package selection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// topics is a fake embedder. Its vectors have one number for each topic, which is 1 if the text has a word of the
// topic.
type topics struct {
	words [][]string
	err   error
	hang  bool
	calls atomic.Int64
}

func (f *topics) Model() (string, int) { return "topics", len(f.words) + 1 }

func (f *topics) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	f.calls.Add(1)
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.err != nil {
		return nil, f.err
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		v := make([]float32, len(f.words)+1)
		v[len(f.words)] = 0.01
		for j, words := range f.words {
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(text), w) }) {
				v[j] = 1
			}
		}
		out[i] = v
	}
	return out, nil
}

func newTopics() *topics { return &topics{words: [][]string{{"umbrella", "weather"}, {"file"}}} }

func TestHybridFusesAndKeepsTheLocalList(t *testing.T) {
	s := Build(catalogue())
	h := NewHybrid(s, newTopics(), HybridOptions{Deadline: time.Minute})
	request := Request{Queries: []string{"do I need an umbrella to read"}}
	before, err := h.Select(t.Context(), request)
	if err != nil || before.Degraded == "" {
		t.Fatalf("Select before Load: degraded %q, %v, want a reason and no error", before.Degraded, err)
	}
	if err := h.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	after, err := h.Select(t.Context(), request)
	if err != nil || after.Degraded != "" {
		t.Fatalf("Select after Load: degraded %q, %v, want none", after.Degraded, err)
	}
	if got := after.Queries[0].Tools[:3]; !slices.Contains(got, "weather/get_weather") ||
		!slices.Contains(got, "filesystem/read_file") {
		t.Errorf("first tools = %v, want the embedder's get_weather and the local list's read_file", got)
	}
}

// Each list has its own cut-off. By ranks alone, all tools of a small catalogue would be selected.
func TestHybridKeepsFewTools(t *testing.T) {
	s := Build(catalogue())
	h := NewHybrid(s, newTopics(), HybridOptions{Deadline: time.Minute})
	if err := h.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ask := func(query string, minimum int, allow func(*Tool) bool) ([]string, float64) {
		t.Helper()
		r, err := h.Select(t.Context(), Request{Queries: []string{query}, Min: minimum, Allow: allow})
		if err != nil || r.Degraded != "" {
			t.Fatalf("Select(%q): degraded %q, %v, want neither", query, r.Degraded, err)
		}
		return r.Queries[0].Tools, r.Queries[0].Confidence
	}
	got, confidence := ask("umbrella", 1, nil) // no tool contains the word
	if want := []string{"weather/get_forecast", "weather/get_weather"}; !slices.Equal(got, want) || confidence < 0.5 {
		t.Errorf("umbrella: %v with confidence %v, want %v with at least 0.5", got, confidence, want)
	}
	if got, _ := ask("umbrella", 4, nil); len(got) != 4 || !strings.HasPrefix(got[0], "weather/") {
		t.Errorf("umbrella with a minimum of 4: %v, want four tools, the weather's first", got)
	}
	got, _ = ask("umbrella", 1, func(t *Tool) bool { return t.Server == "filesystem" })
	outside := func(id string) bool { return !strings.HasPrefix(id, "filesystem/") }
	if len(got) == 0 || slices.ContainsFunc(got, outside) {
		t.Errorf("umbrella, only filesystem allowed: %v, want some tools of filesystem and no others", got)
	}
}

func TestHybridDegrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Build(catalogue())
		e := newTopics()
		h := NewHybrid(s, e, HybridOptions{})
		if err := h.Load(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		ask := func(text string) string {
			r, err := h.Select(t.Context(), Request{Queries: []string{text}})
			if err != nil || len(idsOf(r)) == 0 {
				t.Fatalf("Select(%q) = %v, %v, want the local tools", text, idsOf(r), err)
			}
			return r.Degraded
		}
		if got := ask("known"); got != "" {
			t.Errorf("working endpoint: degraded %q, want none", got)
		}
		e.hang = true
		begin := time.Now()
		if got := ask("read file a"); !strings.Contains(got, "deadline") || time.Since(begin) != 300*time.Millisecond {
			t.Errorf("hanging endpoint: degraded %q after %v, want the deadline after 300ms", got, time.Since(begin))
		}
		e.hang, e.err = false, errors.New("the endpoint responded with status 500")
		for _, query := range []string{"read file b", "read file again"} {
			if got := ask("known"); got != "" { // neither sends a request nor resets the breaker
				t.Errorf("failing endpoint, query in the cache: degraded %q, want none", got)
			}
			if got := ask(query); !strings.Contains(got, "500") {
				t.Errorf("failing endpoint: degraded %q, want its status", got)
			}
		}
		calls := e.calls.Load()
		if got := ask("read file c"); !strings.Contains(got, "several times") || e.calls.Load() != calls {
			t.Errorf("open breaker: degraded %q, %d more calls, want no call", got, e.calls.Load()-calls)
		}
		if got := ask("known"); got != "" {
			t.Errorf("open breaker, query in the cache: degraded %q, want none", got)
		}
		e.err = nil
		<-time.After(breakerOpen)
		if got := ask("read file d"); got != "" {
			t.Errorf("closed breaker: degraded %q, want none", got)
		}
	})
}

func TestHybridEmbedsNewContentOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vectors")
	cache, err := OpenFileCache(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	e := newTopics()
	s := Build(catalogue())
	if err := NewHybrid(s, e, HybridOptions{Cache: cache}).Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := cache.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := append(whole, "a torn record"...)
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if cache, err = OpenFileCache(path, 100); err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	calls := e.calls.Load()
	h := NewHybrid(s, e, HybridOptions{Cache: cache})
	h.Swap(s)
	if r, _ := h.Select(t.Context(), Request{Queries: []string{"umbrella"}}); r.Degraded != "" ||
		e.calls.Load() != calls+1 {
		t.Errorf("after a restart: degraded %q, %d calls, want one for the query alone", r.Degraded,
			e.calls.Load()-calls)
	}
}

func TestOpenAIEmbedder(t *testing.T) {
	var path, key, version string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, key, version = r.URL.Path, r.Header.Get("Authorization")+r.Header.Get("Api-Key"),
			r.URL.Query().Get("api-version")
		var body struct {
			Input      []string
			Dimensions int
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if body.Input[0] == "busy" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		type item struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		var data []item
		for i := range body.Input { // in reverse order, because the client must use the index
			at := len(body.Input) - 1 - i
			data = append(data, item{at, []float32{float32(at), float32(body.Dimensions)}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	defer server.Close()
	e, err := NewOpenAIEmbedder(OpenAIOptions{BaseURL: server.URL + "/v1/", APIKey: "k1", Dimensions: 512})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Embed(t.Context(), []string{"a", "b"})
	if err != nil || got[1][0] != 1 || got[1][1] != 512 || path != "/v1/embeddings" || key != "Bearer k1" {
		t.Errorf("Embed = %v, %v at %s with %q, want the vectors in the order of the texts", got, err, path, key)
	}
	if _, err := e.Embed(t.Context(), []string{"busy"}); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("Embed on 429 error = %v, want the status in it", err)
	}
	azure, err := NewOpenAIEmbedder(OpenAIOptions{
		BaseURL: server.URL, APIKey: "k2", Deployment: "emb",
		APIVersion: "v",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := azure.Embed(t.Context(), []string{"a"}); err != nil ||
		path != "/openai/deployments/emb/embeddings" || key != "k2" || version != "v" {
		t.Errorf("Azure: %v, request to %s?api-version=%s with the key %q, want the deployment's path and its key", err,
			path, version, key)
	}
	if _, err := NewOpenAIEmbedder(OpenAIOptions{BaseURL: "not a url"}); err == nil {
		t.Error("NewOpenAIEmbedder with an invalid URL = nil error, want an error")
	}
}

// The server accepts four texts in a request, and the model 2,500 bytes in a text. The error message is Ollama's, as in
// internal/openai/testdata/recorded.
func TestOpenAIEmbedderTruncatesLongTexts(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		var body struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		var data []any
		for i, text := range body.Input {
			if len(text) > 2500 || len(body.Input) > 4 || strings.HasSuffix(text, "wrong") {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{"message":"the input length exceeds the context length",`+
					`"type":"api_error","param":null,"code":null}}`)
				return
			}
			data = append(data, map[string]any{"index": i, "embedding": []int{len(text)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	defer server.Close()
	e, err := NewOpenAIEmbedder(OpenAIOptions{BaseURL: server.URL + "/v1/"})
	if err != nil {
		t.Fatal(err)
	}
	long, filtered := strings.Repeat("x", 9000), strings.Repeat("x", 2000)+"wrong"
	for _, c := range []struct {
		texts    []string
		want     string
		requests int
	}{
		{[]string{"a", "bb", long, "dddd", "eeeee", "ffffff"}, "[[1] [2] [2250] [4] [5] [6]]", 10},
		{[]string{long, "bb"}, "[[2250] [2]]", 1}, // the length is remembered
		{[]string{filtered}, "[[1002]]", 3},
		{[]string{long, "bb"}, "[[2250] [2]]", 1}, // the filtered text was not too long
	} {
		requests = 0
		got, err := e.Embed(t.Context(), c.texts)
		if err != nil || fmt.Sprint(got) != c.want || requests != c.requests {
			t.Errorf("Embed = %v, %v after %d requests, want %s after %d", got, err, requests, c.want, c.requests)
		}
	}
	requests = 0
	if _, err := e.Embed(t.Context(), slices.Repeat([]string{"wrong"}, 256)); err == nil || requests != 9 {
		t.Errorf("a request with a wrong text: %v after %d requests, want an error after 9", err, requests)
	}
}
