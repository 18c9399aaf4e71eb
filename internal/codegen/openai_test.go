package codegen_test

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

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
)

// wire answers requests with recorded bytes, one file a request and then the last one again, and keeps the requests.
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
	w.requests, w.urls, w.headers = append(w.requests, request), append(w.urls, r.URL.String()),
		append(w.headers, r.Header)
	if w.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	name := w.files[min(len(w.requests), len(w.files))-1]
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(answerOf(w.t, name))), r)
}

// answerOf returns the bytes of an answer: SERVER/NAME is one of internal/openai's recordings of real servers; NAME
// alone was written from OpenAI's and Azure's documentation.
func answerOf(t *testing.T, name string) []byte {
	t.Helper()
	if !strings.Contains(name, "/") {
		data, err := os.ReadFile(filepath.Join("testdata", "documented", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	recording, err := txtar.ParseFile(filepath.Join("..", "openai", "testdata", "recorded",
		filepath.FromSlash(name)+".txt"))
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

func (w *wire) writer(o codegen.OpenAIOptions, opts codegen.WriterOptions) *codegen.Writer {
	w.t.Helper()
	o.Client, o.APIKey = &http.Client{Transport: w}, testKey
	if o.Model == "" {
		o.Model = "gpt-4o-mini"
	}
	m, err := codegen.NewOpenAI(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return codegen.NewWriter(m, opts)
}

var request = codegen.Request{Task: "Calculate 5 + 3", Tools: codegen.Eleven()[:3]}

const wantCode = "from servers.calculator import calculate\n\nresult = calculate(\"5 + 3\")\nprint(result)\n"

func TestWriteStreamsAProgram(t *testing.T) {
	w := newWire(t, "program")
	var streamed strings.Builder
	program, err := w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Write(t.Context(), request,
		codegen.Call{Progress: func(s string) { streamed.WriteString(s) }})
	if err != nil {
		t.Fatal(err)
	}
	if program.Code != wantCode || program.By != codegen.ByModel ||
		!slices.Equal(program.Tools, []string{"calculator/calculate"}) {
		t.Errorf("program = %+v, want the fenced code and calculate", program)
	}
	if program.Usage != (codegen.Usage{Model: "gpt-4o-mini", PromptTokens: 412, CompletionTokens: 38}) {
		t.Errorf("usage = %+v, want the endpoint's count", program.Usage)
	}
	if !strings.Contains(streamed.String(), "calculate(\"5 + 3\")") {
		t.Errorf("progress = %q, want the program", streamed.String())
	}
	if w.urls[0] != "https://api.openai.com/v1/chat/completions" ||
		w.headers[0].Get("Authorization") != "Bearer "+testKey {
		t.Errorf("asked %s, want OpenAI with the key", w.urls[0])
	}
	if w.requests[0]["max_completion_tokens"] != 4000.0 || w.requests[0]["stream"] != true {
		t.Errorf("request = %v, want a stream of at most 4000 tokens", w.requests[0])
	}
}

// The streams of real servers: a sentence, or thoughts with another program, then the fence in pieces.
func TestWriteReadsARealStream(t *testing.T) {
	r := request
	r.Tools = codegen.Eleven()
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
		program, err := newWire(t, c.recording).writer(codegen.OpenAIOptions{},
			codegen.WriterOptions{}).Write(t.Context(), r, codegen.Call{})
		if err != nil {
			t.Fatal(err)
		}
		if program.Code != c.code || !slices.Equal(program.Tools, c.tools) {
			t.Errorf("%s: program = %s, of %v, want %s", c.recording, program.Code, program.Tools, c.code)
		}
		if program.Usage != (codegen.Usage{Model: "gpt-4o-mini", PromptTokens: c.prompt, CompletionTokens: c.answer}) {
			t.Errorf("%s: usage = %+v, want the server's count", c.recording, program.Usage)
		}
	}
}

func TestWriteLearnsTheEndpointsParameters(t *testing.T) {
	temperature := 0.3
	for _, c := range []struct {
		name    string
		options codegen.OpenAIOptions
		refused string
		want    string // a parameter of the second request
		gone    string // one it must not have
	}{
		{"old server", codegen.OpenAIOptions{}, "max_completion_tokens_refused", "max_tokens", "max_completion_tokens"},
		{
			"new model behind a URL",
			codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"},
			"max_tokens_refused",
			"max_completion_tokens", "max_tokens",
		},
		{
			"a name that OpenAI's models have, behind a URL",
			codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1", Model: "o3-mini"},
			"max_tokens_refused",
			"max_completion_tokens", "max_tokens",
		},
		{
			"another, on an old server",
			codegen.OpenAIOptions{Model: "gpt-5"},
			"max_completion_tokens_refused",
			"max_tokens", "max_completion_tokens",
		},
		{
			"no temperature",
			codegen.OpenAIOptions{Temperature: &temperature},
			"temperature_refused",
			"max_completion_tokens", "temperature",
		},
		{
			"no temperature, by message",
			codegen.OpenAIOptions{Temperature: &temperature},
			"temperature_refused_in_words", "stream_options", "temperature",
		},
		{
			"server that does not say",
			codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"},
			"extra_fields_refused",
			"max_completion_tokens", "stream_options",
		},
	} {
		w := newWire(t, c.refused, "program")
		writer := w.writer(c.options, codegen.WriterOptions{})
		for range 2 {
			if _, err := writer.Write(t.Context(), request, codegen.Call{}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if len(w.requests) != 3 {
			t.Errorf("%s: %d requests for two programs, want 3: the parameters are remembered", c.name,
				len(w.requests))
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

// A request that fails with all parameters was not refused for them.
func TestWriteRemembersOnlyWhatHelped(t *testing.T) {
	w := newWire(t, "extra_fields_refused", "extra_fields_refused", "program")
	writer := w.writer(codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"}, codegen.WriterOptions{})
	_, err := writer.Write(t.Context(), request, codegen.Call{})
	if failed, ok := errors.AsType[*codegen.ModelError](err); !ok || failed.Kind != codegen.BadRequest ||
		len(w.requests) != 2 {
		t.Fatalf("first: %v after %d requests, want %s after 2", err, len(w.requests), codegen.BadRequest)
	}
	if _, err := writer.Write(t.Context(), request, codegen.Call{}); err != nil {
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
	_, err := w.writer(codegen.OpenAIOptions{
		BaseURL: "https://r.cognitiveservices.azure.com/", Deployment: "my chat",
		APIVersion: "2024-12-01-preview",
	}, codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
	want := "https://r.cognitiveservices.azure.com/openai/deployments/my%20chat/chat/completions" +
		"?api-version=2024-12-01-preview"
	if err != nil || w.urls[0] != want || w.headers[0].Get("Api-Key") != testKey ||
		w.headers[0].Get("Authorization") != "" {
		t.Errorf("asked %s, %v, want %s with the header Api-Key", w.urls[0], err, want)
	}
}

// failures are the exchanges that yield no program.
var failures = []struct {
	file  string
	kind  codegen.Kind
	asked int
}{
	{"unauthorised", codegen.Unauthorised, 1},
	{"deployment_not_found", codegen.UnknownModel, 1},
	{"rate_limited", codegen.RateLimited, 3},
	{"rate_limited_long", codegen.RateLimited, 1},
	{"insufficient_quota", codegen.OverBudget, 1},
	{"server_error", codegen.Unavailable, 3},
	{"html", codegen.Unavailable, 3},
	{"content_filter", codegen.Refused, 1},
	{"content_filter_stream", codegen.Refused, 1},
	{"refusal", codegen.Refused, 1},
	{"context_length", codegen.TooLong, 1},
	{"prose", codegen.NoProgram, 1},
	{"javascript", codegen.NoProgram, 1},
	{"empty", codegen.NoProgram, 1},
	{"cut", codegen.TooLong, 1},
	{"invalid_json", codegen.BadAnswer, 3},
	{"stream_error", codegen.BadAnswer, 3},
	{"ollama-0.17.4/unknown_model", codegen.UnknownModel, 1},
	{"ollama-0.17.4/invalid_request", codegen.BadRequest, 2}, // once more with other parameters: it names none
	{"ollama-0.17.4/length", codegen.TooLong, 1},
	{"ollama-0.17.4/busy", codegen.Unavailable, 3},
	{"ollama-0.17.4-model-killed/killed", codegen.BadAnswer, 3},
	{"ollama-0.17.4-server-killed/killed", codegen.BadAnswer, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/wrong_key", codegen.Unauthorised, 1},
	{"nginx-1.22.1-before-ollama-0.17.4/busy", codegen.RateLimited, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/too_long", codegen.TooLong, 1},
	{"nginx-1.22.1-ollama-slow/length", codegen.Unavailable, 3},
	{"nginx-1.22.1-ollama-stopped/length", codegen.Unavailable, 3},
	{"nginx-1.22.1-ollama-killed/killed", codegen.BadAnswer, 3},
}

func TestWriteFails(t *testing.T) {
	for _, c := range failures {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t, c.file)
			writer := w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{})
			_, err := writer.Write(t.Context(), request, codegen.Call{})
			failed, ok := errors.AsType[*codegen.ModelError](err)
			if !ok || failed.Kind != c.kind || len(w.requests) != c.asked {
				t.Errorf("%s: %v after %d requests, want %s after %d", c.file, err, len(w.requests), c.kind, c.asked)
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("%s: the error contains the key: %v", c.file, err)
			}
			program, err := codegen.Generate(t.Context(), writer, rules.Write, request, codegen.Call{})
			if err != nil || program.By != codegen.ByRules || !strings.Contains(program.Fallback, string(c.kind)) {
				t.Errorf("%s: Generate = %+v, %v, want the rules' program and why", c.file, program, err)
			}
		})
	}
}

func TestWriteHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, "rate_limited", "server_error", "program")
		begin := time.Now()
		_, err := w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
		if err != nil || time.Since(begin) != 8*time.Second {
			t.Errorf("429 with Retry-After 7, then 500: %v after %v, want a program after 7s and 1s", err,
				time.Since(begin))
		}
	})
}

func TestWriteEndsAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.hang = true
		begin := time.Now()
		_, err := w.writer(codegen.OpenAIOptions{},
			codegen.WriterOptions{Timeout: 10 * time.Second}).Write(t.Context(), request, codegen.Call{})
		failed, ok := errors.AsType[*codegen.ModelError](err)
		if !ok || failed.Error() != "model_timeout: no program within 10s" || time.Since(begin) != 10*time.Second {
			t.Errorf("hang: %v after %v, want a time-out after 10s", err, time.Since(begin))
		}
	})
}

func TestBudget(t *testing.T) {
	w := newWire(t, "program")
	task, tenant := codegen.NewBudget(100_000), codegen.NewBudget(4_600)
	writer := w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{})
	if _, err := writer.Write(t.Context(), request,
		codegen.Call{Budgets: []*codegen.Budget{task, tenant, nil}}); err != nil {
		t.Fatal(err)
	}
	if task.Left() != 100_000-450 || tenant.Left() != 4_600-450 {
		t.Errorf("left %d and %d, want 450 tokens less in both", task.Left(), tenant.Left())
	}
	_, err := writer.Write(t.Context(), request, codegen.Call{Budgets: []*codegen.Budget{task, tenant}})
	failed, ok := errors.AsType[*codegen.ModelError](err)
	if !ok || failed.Kind != codegen.OverBudget || len(w.requests) != 1 || task.Left() != 100_000-450 {
		t.Errorf("second call: %v, %d requests, task left %d, want %s without a request", err, len(w.requests),
			task.Left(), codegen.OverBudget)
	}
}

func TestUsageIsEstimatedWithoutTheEndpointsCount(t *testing.T) {
	program, err := newWire(t, "program_without_usage").writer(codegen.OpenAIOptions{},
		codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
	if err != nil || !program.Usage.Estimated || program.Usage.PromptTokens < 200 ||
		program.Usage.CompletionTokens < 20 {
		t.Errorf("usage = %+v, %v, want an estimate", program.Usage, err)
	}
}

func TestRepairShowsTheErrorAndTheCalls(t *testing.T) {
	w := newWire(t, "program")
	_, err := w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Repair(t.Context(), request, codegen.Failure{
		Program: "x = 1 / 0", Error: "ZeroDivisionError </error> line 1",
		Done: []string{"database.execute(...) -> 1 row"},
	}, codegen.Call{})
	if err != nil {
		t.Fatal(err)
	}
	messages := w.requests[0]["messages"].([]any)
	last := messages[len(messages)-1].(map[string]any)["content"].(string)
	for _, want := range []string{
		"x = 1 / 0", "ZeroDivisionError ‹/error> line 1", "database.execute(...) -> 1 row",
		"Do not make them again with other arguments",
	} {
		if !strings.Contains(last, want) {
			t.Errorf("repair prompt lacks %q:\n%s", want, last)
		}
	}
}

func TestGenerateWithoutEither(t *testing.T) {
	w := newWire(t, "unauthorised")
	_, err := codegen.Generate(t.Context(), w.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}), rules.Write,
		codegen.Request{Task: "write a poem about the sea"}, codegen.Call{})
	_, byRules := errors.AsType[*codegen.CodeRequiredError](err)
	model, ok := errors.AsType[*codegen.ModelError](err)
	if !byRules || !ok || model.Kind != codegen.Unauthorised {
		t.Errorf("Generate error = %v, want both the rules' and the model's", err)
	}
	if _, err := codegen.Generate(t.Context(), nil, rules.Write, codegen.Request{Task: "write a poem"},
		codegen.Call{}); err == nil {
		t.Error("Generate without a writer and rules: no error")
	}
}
