package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const key = "key-of-the-test"

// serve starts an endpoint on a real connection. last is the last request that it received.
func serve(t *testing.T, handler http.HandlerFunc) (e Endpoint, last *http.Request) {
	t.Helper()
	last = new(http.Request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*last = *r.Clone(t.Context())
		last.Body = io.NopCloser(strings.NewReader(string(body)))
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return Endpoint{BaseURL: server.URL + "/v1", APIKey: key}, last
}

func respond(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

// chat returns the whole text of a response.
func chat(t *testing.T, e Endpoint, r ChatRequest) (string, error) {
	t.Helper()
	c, err := New(e)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for chunk, err := range c.Chat(t.Context(), r) {
		if err != nil {
			if strings.Contains(err.Error(), key) {
				t.Errorf("the error contains the key: %v", err)
			}
			return text.String(), err
		}
		text.WriteString(chunk.Content)
	}
	return text.String(), nil
}

const hello = ": waiting\n\nevent: ping\n\ndata:\n\ndata: " +
	"{\"error\":null,\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\ndata: {\"choices\":[{\"delta\":\n" +
	"data: {\"content\":\"lo\"}}]}\r\n\r\ndata: [DONE]\n\ndata: no JSON\n\n"

// The request does not depend on the model's name and omits fields that are not set.
func TestChatSendsTheRequest(t *testing.T) {
	e, last := serve(t, respond(hello))
	zero := 0.0
	for _, model := range []string{"gpt-5", "o3-mini", "gpt-6-sol", "llama3.1:8b"} {
		request := ChatRequest{Model: model, Messages: []Message{{"user", "<&>"}}, MaxTokens: 7, Temperature: &zero}
		got, err := chat(t, e, request)
		if err != nil || got != "hello" {
			t.Errorf("%s: %q, %v, want hello", model, got, err)
		}
		body, _ := io.ReadAll(last.Body)
		want := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"\u003c\u0026\u003e"}],`+
			`"max_tokens":7,"temperature":0,"stream":true}`, model)
		if got := string(orderFields(body)); got != want || last.URL.Path != "/v1/chat/completions" {
			t.Errorf("%s: request to %s = %s, want %s to /v1/chat/completions", model, last.URL.Path, got, want)
		}
	}
}

// roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{
		"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID",
		"AZURE_OPENAI_API_KEY",
	} {
		t.Setenv(name, "http://"+key)
	}
	_, err := chat(t, Endpoint{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != "https://api.openai.com/v1/chat/completions" ||
			strings.Contains(fmt.Sprint(r.Header), key) {
			t.Errorf("request to %s with %v, want OpenAI's URL and no key", r.URL, r.Header)
		}
		return nil, errors.New("connection reset")
	})}}, ChatRequest{Model: "m"})
	if _, ok := errors.AsType[*ConnectionError](err); !ok || strings.Contains(err.Error(), "openai.com") {
		t.Errorf("error = %v, want a *ConnectionError without the URL", err)
	}
}

func TestNewRefusesInvalidEndpoints(t *testing.T) {
	for _, e := range []Endpoint{
		{BaseURL: "not a url"},
		{BaseURL: "ftp://h/v1"},
		{BaseURL: "http://" + key + ":%zz/"},
		{Deployment: "d"},
	} {
		if _, err := New(e); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("New(%+v) error = %v, want an error that does not repeat the base URL", e, err)
		}
	}
}

func TestStatusErrors(t *testing.T) {
	for body, want := range map[string]StatusError{
		`{"error":{"message":"m","code":"c","param":"p"}}`:          {Message: "m", Code: "c", Param: "p"},
		`{"error":{"message":"m","code":400,"param":null}}`:         {Message: "m"},
		`{"error":"model not found"}`:                               {Message: "model not found"},
		`{"object":"error","message":"m","param":"p","code":40303}`: {Message: "m", Param: "p"},
		`{"error":null,"detail":[]}`:                                {},
		`[1]`:                                                       {},
		`<html>` + strings.Repeat("x", 1<<20):                       {},
		``:                                                          {},
	} {
		e, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, body)
		})
		_, err := chat(t, e, ChatRequest{})
		got, ok := errors.AsType[*StatusError](err)
		if !ok || got.Status != 429 || got.Header.Get("Retry-After") != "7" || got.Message != want.Message ||
			got.Code != want.Code || got.Param != want.Param {
			t.Errorf("%.60s: %+v, want %+v with status 429 and its header", body, got, want)
		}
	}
}

// A redirect would send the key to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other, last := serve(t, respond(hello))
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.BaseURL+"/x", http.StatusTemporaryRedirect)
	})
	e.Deployment = "d"
	_, err := chat(t, e, ChatRequest{})
	if got, ok := errors.AsType[*StatusError](err); !ok || got.Status != 307 || last.URL != nil {
		t.Errorf("error = %v, request to the other server %v, want 307 and no request", err, last.URL)
	}
}

func TestResponsesAreLimited(t *testing.T) {
	endless := func(piece string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}
	}
	e, _ := serve(t, endless("data: {\"choices\":[]}"+strings.Repeat(" ", 1<<16)+"\n\n"))
	if _, err := chat(t, e, ChatRequest{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless chunks: %v, want %v", err, ErrTooLarge)
	}
	e, _ = serve(t, endless("data: "+strings.Repeat("x", 1<<16)))
	if _, err := chat(t, e, ChatRequest{}); !errors.Is(err, errLongEvent) {
		t.Errorf("one endless chunk: %v, want %v", err, errLongEvent)
	}
	e, _ = serve(t, endless(strings.Repeat(" ", 1<<16)))
	c, err := New(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Embed(t.Context(), EmbeddingRequest{Input: []string{"a"}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless vectors: %v, want %v", err, ErrTooLarge)
	}
}

// TestDoneEndsTheResponse checks that a response ends with [DONE], although the endpoint keeps it open.
func TestDoneEndsTheResponse(t *testing.T) {
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		respond(hello)(w, r)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // the server's writer is one
		<-r.Context().Done()     // the client has closed the connection
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := New(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Chat(ctx, ChatRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("Chat waited for the endpoint to end the response: %v", err)
	}
}

func TestEmbed(t *testing.T) {
	for body, want := range map[string]string{
		`{"data":[{"index":1,"embedding":[2,3]},{"index":0,"embedding":[0.5,-1e-3]}]}`: "",
		`{"data":[{"index":0,"embedding":[1]}]}`:                                       "1 vectors for 2 texts",
		`{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`:           "with index 0 for 2 texts",
		`{"data":[{"index":7,"embedding":[1]},{"index":-1,"embedding":[1]}]}`:          "with index 7 for 2 texts",
		`{"data":[{"index":0,"embedding":[1e99]}]}`:                                    "float32",
		`{"data":[{"index":0,"embedding":"AAAA"}]}`:                                    "cannot unmarshal",
		`<html>`: "invalid character",
	} {
		e, last := serve(t, respond(body))
		c, err := New(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Embed(t.Context(), EmbeddingRequest{Model: "m", Input: []string{"a", "b"}, Dimensions: 2})
		if want == "" {
			sent, _ := io.ReadAll(last.Body)
			if err != nil || fmt.Sprint(got) != "[[0.5 -0.001] [2 3]]" ||
				string(orderFields(sent)) !=
					`{"model":"m","input":["a","b"],"dimensions":2,"encoding_format":"float"}` {
				t.Errorf("Embed = %v, %v for %s, want the vectors in the order of the texts", got, err, sent)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", body, err, want)
		}
	}
}

func FuzzParseChunk(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`,
		`{"error":{"message":5}}`, `{"error":"x","usage":null}`, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		chunk, err := parseChunk([]byte(data))
		if err == nil && !json.Valid([]byte(data)) || err != nil && chunk != (Chunk{}) {
			t.Errorf("parseChunk(%q) = %+v, %v, want either a chunk of valid JSON or an error", data, chunk, err)
		}
	})
}
