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

// subject is the endpoint of a recording, as named to make record-wire.
type subject struct {
	endpoint Endpoint
	server   string // name and version
	model    string
	embedder string
	kill     string // a shell command that kills the server or its model
}

// A scenario is one exchange. ask returns what the client read, which is the same in a recording and in its replay.
type scenario struct {
	name string
	ask  func(t *testing.T, c *Client, s subject) string
	key  string // instead of the endpoint's
	busy bool   // many requests at once, until one is refused
}

var scenarios = []scenario{
	{name: "chat", ask: chatting(ChatRequest{MaxTokens: 100, IncludeUsage: true}, "Calculate 5 + 3")},
	{name: "no_usage", ask: chatting(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3")},
	{name: "length", ask: chatting(ChatRequest{MaxTokens: 3, IncludeUsage: true}, "Calculate 5 + 3")},
	{name: "length_by_new_name", ask: chatting(ChatRequest{MaxCompletionTokens: 3, IncludeUsage: true},
		"Calculate 5 + 3")},
	{name: "too_long", ask: chatting(ChatRequest{MaxTokens: 3, IncludeUsage: true},
		strings.Repeat("words and more words, ", 1000))},
	{name: "unknown_model", ask: chatting(ChatRequest{Model: "no-such-model", MaxTokens: 3}, "Calculate 5 + 3")},
	{name: "invalid_request", ask: chatting(ChatRequest{Messages: []Message{}, MaxTokens: 3})},
	{name: "wrong_key", ask: chatting(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3"), key: "wrong-key"},
	{name: "busy", ask: chatting(ChatRequest{MaxTokens: 3}, "Calculate 5 + 3"), busy: true},
	{name: "killed", ask: func(t *testing.T, c *Client, s subject) string {
		t.Helper()
		if s.kill == "" {
			t.Skip("no KILL")
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
	{name: "embeddings", ask: embedding(EmbeddingRequest{Input: []string{
		"the weather of a city", "add two numbers",
		" ",
	}})},
	{name: "embeddings_dimensions", ask: embedding(EmbeddingRequest{
		Input:      []string{"the weather of a city"},
		Dimensions: 8,
	})},
	{name: "embeddings_unknown_model", ask: embedding(EmbeddingRequest{Model: "no-such-model", Input: []string{"a"}})},
	{name: "embeddings_too_long", ask: embedding(EmbeddingRequest{
		Input: []string{strings.Repeat("words and more words, ", 1000)},
	})},
}

func chatting(r ChatRequest, texts ...string) func(*testing.T, *Client, subject) string {
	return func(t *testing.T, c *Client, s subject) string {
		t.Helper()
		r := r
		r.Model = cmp.Or(r.Model, s.model)
		for _, text := range texts {
			r.Messages = []Message{{"user", text}}
		}
		return read(t, c, r, func() {})
	}
}

// read describes an answer as the client reads it; begun is called once, after the first chunk.
func read(t *testing.T, c *Client, r ChatRequest, begun func()) string {
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
			begun()
		}
	}
	return fmt.Sprintf("%d chunks of %q\nfinish_reason: %s\nusage: %d + %d tokens\n", chunks, text.String(),
		finish.String(), prompt, completion)
}

func embedding(r EmbeddingRequest) func(*testing.T, *Client, subject) string {
	return func(t *testing.T, c *Client, s subject) string {
		t.Helper()
		if s.embedder == "" {
			t.Skip("no EMBEDDER")
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

// errorText is an error as the recordings have it.
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
		t.Skip("make record-wire")
	}
	s := subject{
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
					x.first.Sub(x.sent).Round(time.Millisecond)),
				Files: []txtar.File{
					{Name: "request", Data: []byte(x.asked)},
					{Name: "response", Data: s.redact(x.answer())},
					{Name: "read", Data: s.redact([]byte(outcome))},
				},
			})
			if leak := leakIn(data); leak != "" || len(data) > maxRecording {
				t.Fatalf("not written: %d bytes of at most %d; possible secret or name of this machine: %q",
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

const maxRecording = 20 << 10

// record plays a scenario against the endpoint.
func (s subject) record(t *testing.T, sc scenario) (*exchange, string) {
	t.Helper()
	once := func() (*exchange, string) {
		x := new(exchange)
		e := s.endpoint
		e.Client = &http.Client{Transport: x}
		e.APIKey = cmp.Or(sc.key, e.APIKey)
		c, err := New(e)
		if err != nil {
			t.Fatal(err)
		}
		return x, sc.ask(t, c, s)
	}
	if !sc.busy {
		return once()
	}
	type outcome struct {
		x    *exchange
		text string
	}
	results := make(chan outcome, 100)
	var all sync.WaitGroup
	for range cap(results) {
		all.Go(func() {
			x, text := once()
			results <- outcome{x, text}
		})
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

// exchange is a transport for one request that records the bytes on the wire.
type exchange struct {
	asked       string
	sent, first time.Time

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
	r.Body, x.asked, x.sent = io.NopCloser(bytes.NewReader(body)), described(r, body), time.Now()
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

func (x *exchange) answer() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Clone(x.received.Bytes())
}

type tee struct {
	net.Conn
	x *exchange
}

func (c *tee) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	if n > 0 && c.x.received.Len() == 0 {
		c.x.first = time.Now()
	}
	c.x.received.Write(p[:n])
	return n, err
}

// described is a request without its secrets and host.
func described(r *http.Request, body []byte) string {
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
	return b.String() + "\n" + shortened(inOrder(body))
}

// inOrder writes a request's JSON with its fields in the order of the recordings; the protocol does not define one.
func inOrder(body []byte) []byte {
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

// shortened truncates a long body.
func shortened(body []byte) string {
	if len(body) > 4<<10 {
		return fmt.Sprintf("%s … (%d bytes)\n", body[:1<<10], len(body))
	}
	return string(body) + "\n"
}

var (
	private   = regexp.MustCompile(`(?im)^(?:set-cookie|openai-organization|openai-project):.*\r\n`)
	keyShaped = regexp.MustCompile(`sk-[\w*.-]{6,}`) // endpoints repeat a part of a wrong key
)

// redact masks secrets without a change of length: chunks declare theirs.
func (s subject) redact(data []byte) []byte {
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
