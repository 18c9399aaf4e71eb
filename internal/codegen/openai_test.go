package codegen

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// wire answers requests with exchanges in the protocol's own bytes, one file a request, the last one again and again,
// and keeps what was asked.
type wire struct {
	t        *testing.T
	files    []string
	requests []map[string]any
	urls     []string
	headers  []http.Header
	hang     bool
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		w.t.Errorf("request is no JSON: %v", err)
	}
	w.requests, w.urls, w.headers = append(w.requests, request), append(w.urls, r.URL.String()), append(w.headers, r.Header)
	if w.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	name := w.files[min(len(w.requests), len(w.files))-1]
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(answerOf(w.t, name))), r)
}

// answerOf returns the bytes of an answer: SERVER/NAME is one that a real server gave, in internal/openai's recordings;
// NAME alone was written after OpenAI's and Azure's documentation.
func answerOf(t *testing.T, name string) []byte {
	t.Helper()
	if !strings.Contains(name, "/") {
		data, err := os.ReadFile(filepath.Join("testdata", "documented", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	recording, err := txtar.ParseFile(filepath.Join("..", "openai", "testdata", "recorded", filepath.FromSlash(name)+".txt"))
	if err != nil || len(recording.Files) != 3 {
		t.Fatalf("%s: %v, want request, response, read", name, err)
	}
	return recording.Files[1].Data
}

func newWire(t *testing.T, files ...string) *wire {
	t.Helper()
	return &wire{t: t, files: files}
}

const testKey = "key-of-the-test"

func (w *wire) writer(o OpenAIOptions, opts WriterOptions) *Writer {
	w.t.Helper()
	o.Client, o.APIKey = &http.Client{Transport: w}, testKey
	if o.Model == "" {
		o.Model = "gpt-4o-mini"
	}
	m, err := NewOpenAI(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return NewWriter(m, opts)
}

var request = Request{Task: "Calculate 5 + 3", Tools: eleven()[:3]}

const wantCode = "from servers.calculator import calculate\n\nresult = calculate(\"5 + 3\")\nprint(result)\n"

func TestWriteStreamsAProgram(t *testing.T) {
	w := newWire(t, "program")
	var streamed strings.Builder
	program, err := w.writer(OpenAIOptions{}, WriterOptions{}).Write(t.Context(), request, Call{Progress: func(s string) { streamed.WriteString(s) }})
	if err != nil {
		t.Fatal(err)
	}
	if program.Code != wantCode || program.By != ByModel || !slices.Equal(program.Tools, []string{"calculator/calculate"}) {
		t.Errorf("program = %+v, want the fenced code and calculate", program)
	}
	if program.Usage != (Usage{Model: "gpt-4o-mini", PromptTokens: 412, CompletionTokens: 38}) {
		t.Errorf("usage = %+v, want the endpoint's count", program.Usage)
	}
	if !strings.Contains(streamed.String(), "calculate(\"5 + 3\")") {
		t.Errorf("progress = %q, want the program", streamed.String())
	}
	if w.urls[0] != "https://api.openai.com/v1/chat/completions" || w.headers[0].Get("Authorization") != "Bearer "+testKey {
		t.Errorf("asked %s, want OpenAI with the key", w.urls[0])
	}
	if w.requests[0]["max_completion_tokens"] != 4000.0 || w.requests[0]["stream"] != true {
		t.Errorf("request = %v, want a stream of at most 4000 tokens", w.requests[0])
	}
}

// What a real server streamed: a first sentence, or thoughts with a program of their own, then the fence in pieces.
func TestWriteReadsARealStream(t *testing.T) {
	r := request
	r.Tools = eleven()
	for _, c := range []struct {
		recording, code string
		tools           []string
		prompt, answer  int
	}{
		{"ollama-0.17.4/chat", `from servers.calculator import calculate
from servers.weather import get_weather

sum = calculate("5 + 3")
weather = get_weather("San Francisco", units="celsius")
print("5 + 3 =", sum)
print(weather["location"], weather["temperature"])
result = {"sum": sum, "weather": weather}
`, []string{"calculator/calculate", "weather/get_weather"}, 17, 45},
		{"ollama-0.17.4-reasoning/chat", "result = 5 + 3\n", nil, 17, 13},
	} {
		program, err := newWire(t, c.recording).writer(OpenAIOptions{}, WriterOptions{}).Write(t.Context(), r, Call{})
		if err != nil {
			t.Fatal(err)
		}
		if program.Code != c.code || !slices.Equal(program.Tools, c.tools) {
			t.Errorf("%s: program = %s, of %v, want %s", c.recording, program.Code, program.Tools, c.code)
		}
		if program.Usage != (Usage{Model: "gpt-4o-mini", PromptTokens: c.prompt, CompletionTokens: c.answer}) {
			t.Errorf("%s: usage = %+v, want the server's count", c.recording, program.Usage)
		}
	}
}

func TestWriteFindsOutWhatTheEndpointTakes(t *testing.T) {
	temperature := 0.3
	for _, c := range []struct {
		name    string
		options OpenAIOptions
		refused string
		want    string // a parameter of the second request
		gone    string // one it must not have
	}{
		{"old server", OpenAIOptions{}, "max_completion_tokens_refused", "max_tokens", "max_completion_tokens"},
		{"new model behind a URL", OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"}, "max_tokens_refused", "max_completion_tokens", "max_tokens"},
		{"a name that OpenAI's models have, behind a URL", OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1", Model: "o3-mini"}, "max_tokens_refused", "max_completion_tokens", "max_tokens"},
		{"another, on an old server", OpenAIOptions{Model: "gpt-5"}, "max_completion_tokens_refused", "max_tokens", "max_completion_tokens"},
		{"no temperature", OpenAIOptions{Temperature: &temperature}, "temperature_refused", "max_completion_tokens", "temperature"},
		{"no temperature, said in words", OpenAIOptions{Temperature: &temperature}, "temperature_refused_in_words", "stream_options", "temperature"},
		{"server that does not say", OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"}, "extra_fields_refused", "max_completion_tokens", "stream_options"},
	} {
		w := newWire(t, c.refused, "program")
		writer := w.writer(c.options, WriterOptions{})
		for range 2 {
			if _, err := writer.Write(t.Context(), request, Call{}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if len(w.requests) != 3 {
			t.Errorf("%s: %d requests for two programs, want 3: what was found out is remembered", c.name, len(w.requests))
		}
		for _, r := range w.requests[1:] {
			if _, ok := r[c.want]; !ok {
				t.Errorf("%s: request %v lacks %s", c.name, r, c.want)
			}
			if _, ok := r[c.gone]; ok {
				t.Errorf("%s: request still has %s", c.name, c.gone)
			}
		}
	}
}

// A request that fails in every form was not turned down for its parameters.
func TestWriteRemembersOnlyWhatHelped(t *testing.T) {
	w := newWire(t, "extra_fields_refused", "extra_fields_refused", "program")
	writer := w.writer(OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"}, WriterOptions{})
	_, err := writer.Write(t.Context(), request, Call{})
	if failed, ok := errors.AsType[*ModelError](err); !ok || failed.Kind != BadRequest || len(w.requests) != 2 {
		t.Fatalf("first: %v after %d requests, want %s after 2", err, len(w.requests), BadRequest)
	}
	if _, err := writer.Write(t.Context(), request, Call{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"max_tokens", "stream_options"} {
		if _, ok := w.requests[2][name]; !ok {
			t.Errorf("the next request lacks %s: %v", name, w.requests[2])
		}
	}
}

func TestAzure(t *testing.T) {
	w := newWire(t, "program")
	_, err := w.writer(OpenAIOptions{BaseURL: "https://r.cognitiveservices.azure.com/", Deployment: "my chat", APIVersion: "2024-12-01-preview"}, WriterOptions{}).Write(t.Context(), request, Call{})
	want := "https://r.cognitiveservices.azure.com/openai/deployments/my%20chat/chat/completions?api-version=2024-12-01-preview"
	if err != nil || w.urls[0] != want || w.headers[0].Get("Api-Key") != testKey || w.headers[0].Get("Authorization") != "" {
		t.Errorf("asked %s, %v, want %s with the header Api-Key", w.urls[0], err, want)
	}
}

// failures are the exchanges that end without a program.
var failures = []struct {
	file  string
	kind  Kind
	asked int
}{
	{"unauthorised", Unauthorised, 1},
	{"deployment_not_found", UnknownModel, 1},
	{"rate_limited", RateLimited, 3},
	{"rate_limited_long", RateLimited, 1},
	{"insufficient_quota", OverBudget, 1},
	{"server_error", Unavailable, 3},
	{"html", Unavailable, 3},
	{"content_filter", Refused, 1},
	{"content_filter_stream", Refused, 1},
	{"refusal", Refused, 1},
	{"context_length", TooLong, 1},
	{"prose", NoProgram, 1},
	{"javascript", NoProgram, 1},
	{"empty", NoProgram, 1},
	{"cut", TooLong, 1},
	{"invalid_json", BadAnswer, 3},
	{"stream_error", BadAnswer, 3},
	{"ollama-0.17.4/unknown_model", UnknownModel, 1},
	{"ollama-0.17.4/invalid_request", BadRequest, 2}, // once more with other parameters: it names none
	{"ollama-0.17.4/length", TooLong, 1},
	{"ollama-0.17.4/busy", Unavailable, 3},
	{"ollama-0.17.4-model-killed/killed", BadAnswer, 3},
	{"ollama-0.17.4-server-killed/killed", BadAnswer, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/wrong_key", Unauthorised, 1},
	{"nginx-1.22.1-before-ollama-0.17.4/busy", RateLimited, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/too_long", TooLong, 1},
	{"nginx-1.22.1-ollama-slow/length", Unavailable, 3},
	{"nginx-1.22.1-ollama-stopped/length", Unavailable, 3},
	{"nginx-1.22.1-ollama-killed/killed", BadAnswer, 3},
}

func TestWriteFails(t *testing.T) {
	for _, c := range failures {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t, c.file)
			writer := w.writer(OpenAIOptions{}, WriterOptions{})
			_, err := writer.Write(t.Context(), request, Call{})
			failed, ok := errors.AsType[*ModelError](err)
			if !ok || failed.Kind != c.kind || len(w.requests) != c.asked {
				t.Errorf("%s: %v after %d requests, want %s after %d", c.file, err, len(w.requests), c.kind, c.asked)
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("%s: the error holds the key: %v", c.file, err)
			}
			program, err := Generate(t.Context(), writer, request, Call{})
			if err != nil || program.By != ByRules || !strings.Contains(program.Fallback, string(c.kind)) {
				t.Errorf("%s: Generate = %+v, %v, want the rules' program and why", c.file, program, err)
			}
		})
	}
}

func TestWriteWaitsAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, "rate_limited", "server_error", "program")
		begin := time.Now()
		_, err := w.writer(OpenAIOptions{}, WriterOptions{}).Write(t.Context(), request, Call{})
		if err != nil || time.Since(begin) != 8*time.Second {
			t.Errorf("429 with Retry-After 7, then 500: %v after %v, want a program after 7s and 1s", err, time.Since(begin))
		}
	})
}

func TestWriteEndsAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.hang = true
		begin := time.Now()
		_, err := w.writer(OpenAIOptions{}, WriterOptions{Timeout: 10 * time.Second}).Write(t.Context(), request, Call{})
		failed, ok := errors.AsType[*ModelError](err)
		if !ok || failed.Error() != "model_timeout: no program within 10s" || time.Since(begin) != 10*time.Second {
			t.Errorf("hang: %v after %v, want that said after 10s", err, time.Since(begin))
		}
	})
}

func TestBudget(t *testing.T) {
	w := newWire(t, "program")
	task, tenant := NewBudget(100_000), NewBudget(4_600)
	writer := w.writer(OpenAIOptions{}, WriterOptions{})
	if _, err := writer.Write(t.Context(), request, Call{Budgets: []*Budget{task, tenant, nil}}); err != nil {
		t.Fatal(err)
	}
	if task.Left() != 100_000-450 || tenant.Left() != 4_600-450 {
		t.Errorf("left %d and %d, want 450 tokens less in both", task.Left(), tenant.Left())
	}
	_, err := writer.Write(t.Context(), request, Call{Budgets: []*Budget{task, tenant}})
	failed, ok := errors.AsType[*ModelError](err)
	if !ok || failed.Kind != OverBudget || len(w.requests) != 1 || task.Left() != 100_000-450 {
		t.Errorf("second call: %v, %d requests, task left %d, want %s without a request", err, len(w.requests), task.Left(), OverBudget)
	}
}

func TestUsageIsEstimatedWhenTheEndpointDoesNotSay(t *testing.T) {
	program, err := newWire(t, "program_without_usage").writer(OpenAIOptions{}, WriterOptions{}).Write(t.Context(), request, Call{})
	if err != nil || !program.Usage.Estimated || program.Usage.PromptTokens < 200 || program.Usage.CompletionTokens < 20 {
		t.Errorf("usage = %+v, %v, want an estimate", program.Usage, err)
	}
}

func TestRepairShowsTheErrorAndWhatWasDone(t *testing.T) {
	w := newWire(t, "program")
	_, err := w.writer(OpenAIOptions{}, WriterOptions{}).Repair(t.Context(), request, Failure{
		Program: "x = 1 / 0", Error: "ZeroDivisionError </error> line 1", Done: []string{"database.execute(...) -> 1 row"},
	}, Call{})
	if err != nil {
		t.Fatal(err)
	}
	messages := w.requests[0]["messages"].([]any)
	last := messages[len(messages)-1].(map[string]any)["content"].(string)
	for _, want := range []string{"x = 1 / 0", "ZeroDivisionError ‹/error> line 1", "database.execute(...) -> 1 row", "Do not make them again with other arguments"} {
		if !strings.Contains(last, want) {
			t.Errorf("repair prompt lacks %q:\n%s", want, last)
		}
	}
}

func TestGenerateWithoutEither(t *testing.T) {
	w := newWire(t, "unauthorised")
	_, err := Generate(t.Context(), w.writer(OpenAIOptions{}, WriterOptions{}), Request{Task: "write a poem about the sea"}, Call{})
	_, rules := errors.AsType[*CodeRequiredError](err)
	model, ok := errors.AsType[*ModelError](err)
	if !rules || !ok || model.Kind != Unauthorised {
		t.Errorf("Generate error = %v, want both the rules' and the model's", err)
	}
	if _, err := Generate(t.Context(), nil, Request{Task: "write a poem"}, Call{}); err == nil {
		t.Error("Generate without a writer and rules: no error")
	}
}
