package openai

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// target is the endpoint that make record-wire records.
type target struct {
	endpoint Endpoint
	server   string // name and version
	model    string
	embedder string // the embedding model; may be empty
	kill     string // a shell command that kills the server or its model; may be empty
}

// A scenario is one exchange. send returns a description of what the client read, which must be the same when the
// exchange is recorded and when it is replayed.
type scenario struct {
	name string
	send func(t *testing.T, c *Client, s target) string
	key  string // replaces the endpoint's key if it is not empty
	busy bool   // sends 100 requests at once and records one that was refused
}

var scenarios = []scenario{
	{name: "chat", send: chatScenario(ChatRequest{MaxTokens: 100, IncludeUsage: true}, "Calculate 5 + 3")},
	{name: "no_usage", send: chatScenario(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3")},
	{name: "length", send: chatScenario(ChatRequest{MaxTokens: 3, IncludeUsage: true}, "Calculate 5 + 3")},
	{name: "length_by_new_name", send: chatScenario(ChatRequest{MaxCompletionTokens: 3, IncludeUsage: true},
		"Calculate 5 + 3")},
	{name: "too_long", send: chatScenario(ChatRequest{MaxTokens: 3, IncludeUsage: true},
		strings.Repeat("words and more words, ", 1000))},
	{name: "unknown_model", send: chatScenario(ChatRequest{Model: "no-such-model", MaxTokens: 3}, "Calculate 5 + 3")},
	{name: "invalid_request", send: chatScenario(ChatRequest{Messages: []Message{}, MaxTokens: 3})},
	{name: "wrong_key", send: chatScenario(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3"), key: "wrong-key"},
	{name: "busy", send: chatScenario(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3"), busy: true},
	{name: "killed", send: func(t *testing.T, c *Client, s target) string {
		t.Helper()
		if s.kill == "" {
			t.Skip("KILL is not set")
		}
		return read(t, c, ChatRequest{
			Model: s.model, Messages: []Message{{"user", "Calculate 5 + 3"}},
			MaxTokens: 4000,
		}, func() {
			if out, err := exec.Command("sh", "-c", s.kill).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", s.kill, err, out)
			}
		})
	}},
	{name: "embeddings", send: embedScenario(EmbeddingRequest{Input: []string{
		"the weather of a city", "add two numbers",
		" ",
	}})},
	{name: "embeddings_dimensions", send: embedScenario(EmbeddingRequest{
		Input:      []string{"the weather of a city"},
		Dimensions: 8,
	})},
	{name: "embeddings_unknown_model", send: embedScenario(EmbeddingRequest{
		Model: "no-such-model", Input: []string{"a"},
	})},
	{name: "embeddings_too_long", send: embedScenario(EmbeddingRequest{
		Input: []string{strings.Repeat("words and more words, ", 1000)},
	})},
}

func chatScenario(r ChatRequest, texts ...string) func(*testing.T, *Client, target) string {
	return func(t *testing.T, c *Client, s target) string {
		t.Helper()
		r := r
		r.Model = cmp.Or(r.Model, s.model)
		for _, text := range texts {
			r.Messages = []Message{{"user", text}}
		}
		return read(t, c, r, func() {})
	}
}

// read sends a request and describes the response as the client reads it. It calls onFirstChunk once.
func read(t *testing.T, c *Client, r ChatRequest, onFirstChunk func()) string {
	t.Helper()
	var text, finish strings.Builder
	var prompt, completion, chunks int
	for chunk, err := range c.Chat(t.Context(), r) {
		if err != nil {
			return fmt.Sprintf("%d chunks of %q\n%s", chunks, text.String(), errorText(err))
		}
		text.WriteString(chunk.Content)
		finish.WriteString(chunk.FinishReason)
		prompt, completion = prompt+chunk.PromptTokens, completion+chunk.CompletionTokens
		if chunks++; chunks == 1 {
			onFirstChunk()
		}
	}
	return fmt.Sprintf("%d chunks of %q\nfinish_reason: %s\nusage: %d + %d tokens\n", chunks, text.String(),
		finish.String(), prompt, completion)
}

func embedScenario(r EmbeddingRequest) func(*testing.T, *Client, target) string {
	return func(t *testing.T, c *Client, s target) string {
		t.Helper()
		if s.embedder == "" {
			t.Skip("EMBEDDER is not set")
		}
		r := r
		r.Model = cmp.Or(r.Model, s.embedder)
		vectors, err := c.Embed(t.Context(), r)
		if err != nil {
			return errorText(err)
		}
		var b strings.Builder
		for _, v := range vectors {
			fmt.Fprintf(&b, "%d numbers: %.4f …\n", len(v), v[:min(len(v), 4)])
		}
		return b.String()
	}
}

// errorText returns an error as it is recorded.
func errorText(err error) string {
	if failed, ok := errors.AsType[*StatusError](err); ok {
		return fmt.Sprintf("error: status %d, message %q, code %q, param %q, Retry-After %q\n", failed.Status,
			failed.Message, failed.Code, failed.Param, failed.Header.Get("Retry-After"))
	}
	return fmt.Sprintf("error: %v\n", err)
}

// TestRecordWire writes testdata/recorded/SERVER/*.txt; see testdata/README.md.
func TestRecordWire(t *testing.T) {
	if os.Getenv("CODEFLEET_RECORD_WIRE") == "" {
		t.Skip("run make record-wire")
	}
	s := target{
		endpoint: Endpoint{
			BaseURL: os.Getenv("BASE_URL"), APIKey: cmp.Or(os.Getenv("KEY"), "key-of-the-recording"),
			Deployment: os.Getenv("DEPLOYMENT"), APIVersion: os.Getenv("API_VERSION"),
		},
		server: os.Getenv("SERVER"), model: os.Getenv("MODEL"), embedder: os.Getenv("EMBEDDER"),
		kill: os.Getenv("KILL"),
	}
	if s.server == "" || s.model == "" {
		t.Fatal("set SERVER (with its version) and MODEL")
	}
	dir := filepath.Join("testdata", "recorded",
		regexp.MustCompile(`[^a-z0-9.]+`).ReplaceAllString(strings.ToLower(s.server), "-"))
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			x, outcome := s.record(t, sc)
			data := txtar.Format(&txtar.Archive{
				Comment: fmt.Appendf(nil, "server: %s\nmodel: %s\nembedder: %s\nrecorded: %s, first byte after %s\n",
					s.server, s.model, s.embedder, time.Now().UTC().Format(time.DateOnly),
					x.firstByte.Sub(x.sent).Round(time.Millisecond)),
				Files: []txtar.File{
					{Name: "request", Data: []byte(x.request)},
					{Name: "response", Data: s.redact(x.response())},
					{Name: "read", Data: s.redact([]byte(outcome))},
				},
			})
			if leak := findLeak(data); leak != "" || len(data) > maxRecording {
				t.Fatalf("recording not written: it is %d bytes; the limit is %d; possible secret or host name: %q",
					len(data), maxRecording, leak)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, sc.name+".txt"), data, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

const maxRecording = 20 << 10 // bytes

// record runs a scenario against the endpoint.
func (s target) record(t *testing.T, sc scenario) (*exchange, string) {
	t.Helper()
	connect := func() (*exchange, *Client) {
		x := new(exchange)
		e := s.endpoint
		e.Client = &http.Client{Transport: x}
		e.APIKey = cmp.Or(sc.key, e.APIKey)
		c, err := New(e)
		if err != nil {
			t.Fatal(err)
		}
		return x, c
	}
	if !sc.busy {
		x, c := connect()
		return x, sc.send(t, c, s)
	}
	type outcome struct {
		x    *exchange
		text string
	}
	results := make(chan outcome, 100)
	var all sync.WaitGroup
	for range cap(results) {
		x, c := connect()
		all.Go(func() { results <- outcome{x, sc.send(t, c, s)} })
	}
	all.Wait()
	close(results)
	for r := range results {
		if strings.Contains(r.text, "error: status") {
			return r.x, r.text
		}
	}
	t.Skip("the endpoint accepted all requests")
	return nil, ""
}

// exchange is a transport for one request that records the bytes of the response.
type exchange struct {
	request         string
	sent, firstByte time.Time

	mu       sync.Mutex
	received bytes.Buffer
}

// RoundTrip implements http.RoundTripper.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, x.request, x.sent = io.NopCloser(bytes.NewReader(body)), describeRequest(r, body), time.Now()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &tee{conn, x}, err
	}
	dialTLS := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: &tls.Config{NextProtos: []string{"http/1.1"}}}).DialContext(ctx, network,
			address)
		return &tee{conn, x}, err
	}
	return (&http.Transport{
		DialContext: dial, DialTLSContext: dialTLS, DisableCompression: true,
		DisableKeepAlives: true,
	}).RoundTrip(r)
}

func (x *exchange) response() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Clone(x.received.Bytes())
}

// tee is a connection that copies what is read from it to an exchange.
type tee struct {
	net.Conn
	x *exchange
}

func (c *tee) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	if n > 0 && c.x.received.Len() == 0 {
		c.x.firstByte = time.Now()
	}
	c.x.received.Write(p[:n])
	return n, err
}

// describeRequest returns a request without its secrets and host.
func describeRequest(r *http.Request, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\nHost: endpoint\n", r.Method, r.URL.RequestURI())
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		value := r.Header.Get(name)
		switch name {
		case "Authorization":
			value = "Bearer KEY"
		case "Api-Key":
			value = "KEY"
		}
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	return b.String() + "\n" + truncateBody(orderFields(body))
}

// orderFields returns a request's JSON with its fields in a fixed order, since the SDK may send them in any order.
func orderFields(body []byte) []byte {
	var request struct {
		Model    string `json:"model"`
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages,omitzero"`
		Input               []string        `json:"input,omitzero"`
		Dimensions          int             `json:"dimensions,omitzero"`
		EncodingFormat      string          `json:"encoding_format,omitzero"`
		MaxTokens           int             `json:"max_tokens,omitzero"`
		MaxCompletionTokens int             `json:"max_completion_tokens,omitzero"`
		Temperature         *float64        `json:"temperature,omitzero"`
		StreamOptions       json.RawMessage `json:"stream_options,omitzero"`
		Stream              bool            `json:"stream,omitzero"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&request) != nil {
		return body
	}
	ordered, err := json.Marshal(request)
	if err != nil {
		return body
	}
	return ordered
}

// truncateBody truncates a body of more than 4 KiB, and ends it with a newline.
func truncateBody(body []byte) string {
	if len(body) > 4<<10 {
		return fmt.Sprintf("%s … (%d bytes)\n", body[:1<<10], len(body))
	}
	return string(body) + "\n"
}

var (
	private   = regexp.MustCompile(`(?im)^(?:set-cookie|openai-organization|openai-project):.*\r\n`)
	keyShaped = regexp.MustCompile(`sk-[\w*.-]{6,}`) // endpoints repeat a part of a wrong key
)

// redact masks secrets and removes private headers. The length of the body stays, because the chunks contain their
// lengths.
func (s target) redact(data []byte) []byte {
	mask := func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }
	secrets := []string{s.endpoint.APIKey, "wrong-key"}
	if u, err := url.Parse(s.endpoint.BaseURL); err == nil && u.Host != "" {
		secrets = append(secrets, u.Host, u.Hostname())
	}
	if name, err := os.Hostname(); err == nil && len(name) > 3 {
		secrets = append(secrets, name)
	}
	for _, secret := range secrets {
		data = bytes.ReplaceAll(data, []byte(secret), mask([]byte(secret)))
	}
	head, body, _ := bytes.Cut(data, []byte("\r\n\r\n"))
	if len(body) > 0 {
		data = slices.Concat(private.ReplaceAll(append(head, "\r\n"...), nil), []byte("\r\n"), body)
	}
	return keyShaped.ReplaceAllFunc(data, mask)
}
