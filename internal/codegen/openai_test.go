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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
)

// endpoint is a transport that responds with recorded bytes and keeps the requests. Each request gets the response of
// the next file; after the last file, all requests get its response.
type endpoint struct {
	t        *testing.T
	files    []string
	requests []map[string]any
	urls     []string
	headers  []http.Header
	hang     bool
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		e.t.Errorf("the request is not valid JSON: %v", err)
	}
	e.requests, e.urls, e.headers = append(e.requests, request), append(e.urls, r.URL.String()),
		append(e.headers, r.Header)
	if e.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	name := e.files[min(len(e.requests), len(e.files))-1]
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(recordedResponse(e.t, name))), r)
}

// recordedResponse returns the bytes of a response. SERVER/NAME is one of internal/openai's recordings of real servers.
// A NAME alone is a response that was written from OpenAI's and Azure's documentation.
func recordedResponse(t *testing.T, name string) []byte {
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

func newEndpoint(t *testing.T, files ...string) *endpoint {
	t.Helper()
	return &endpoint{t: t, files: files}
}

const testKey = "key-of-the-test"

func (e *endpoint) writer(o codegen.OpenAIOptions, opts codegen.WriterOptions) *codegen.Writer {
	e.t.Helper()
	o.Client, o.APIKey = &http.Client{Transport: e}, testKey
	if o.Model == "" {
		o.Model = "gpt-4o-mini"
	}
	m, err := codegen.NewOpenAI(o)
	if err != nil {
		e.t.Fatal(err)
	}
	return codegen.NewWriter(m, opts)
}

var request = codegen.Request{Task: "Calculate 5 + 3", Tools: codegen.ShippedTools()[:3]}

const wantCode = "from servers.calculator import calculate\n\nresult = calculate(\"5 + 3\")\nprint(result)\n"

func TestWriteStreamsAProgram(t *testing.T) {
	e := newEndpoint(t, "program")
	var streamed strings.Builder
	program, err := e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Write(t.Context(), request,
		codegen.Call{Progress: func(s string) { streamed.WriteString(s) }})
	if err != nil {
		t.Fatal(err)
	}
	if program.Code != wantCode || program.By != codegen.ByModel {
		t.Errorf("program = %+v, want the fenced code", program)
	}
	if program.Usage != (codegen.Usage{Model: "gpt-4o-mini", PromptTokens: 412, CompletionTokens: 38}) {
		t.Errorf("usage = %+v, want the endpoint's count", program.Usage)
	}
	if !strings.Contains(streamed.String(), "calculate(\"5 + 3\")") {
		t.Errorf("progress = %q, want the program", streamed.String())
	}
	if e.urls[0] != "https://api.openai.com/v1/chat/completions" ||
		e.headers[0].Get("Authorization") != "Bearer "+testKey {
		t.Errorf("request to %s, want OpenAI's URL and the key", e.urls[0])
	}
	if e.requests[0]["max_completion_tokens"] != 4000.0 || e.requests[0]["stream"] != true {
		t.Errorf("request = %v, want a stream of at most 4000 tokens", e.requests[0])
	}
}

// The streams of real servers begin with a sentence, or with thoughts that contain another program, and split the fence
// between chunks.
func TestWriteReadsARealStream(t *testing.T) {
	r := request
	r.Tools = codegen.ShippedTools()
	for _, c := range []struct {
		recording, code    string
		prompt, completion int // tokens
	}{
		{"ollama-0.17.4/chat", `from servers.calculator import calculate
from servers.weather import get_weather

sum = calculate("5 + 3")
weather = get_weather("San Francisco", units="celsius")
print("5 + 3 =", sum)
print(weather["location"], weather["temperature"])
result = {"sum": sum, "weather": weather}
`, 17, 45},
		{"ollama-0.17.4-reasoning/chat", "result = 5 + 3\n", 17, 13},
	} {
		program, err := newEndpoint(t, c.recording).writer(codegen.OpenAIOptions{},
			codegen.WriterOptions{}).Write(t.Context(), r, codegen.Call{})
		if err != nil {
			t.Fatal(err)
		}
		if program.Code != c.code {
			t.Errorf("%s: program = %s, want %s", c.recording, program.Code, c.code)
		}
		want := codegen.Usage{Model: "gpt-4o-mini", PromptTokens: c.prompt, CompletionTokens: c.completion}
		if program.Usage != want {
			t.Errorf("%s: usage = %+v, want the server's count %+v", c.recording, program.Usage, want)
		}
	}
}

func TestWriteLearnsTheEndpointsParameters(t *testing.T) {
	temperature := 0.3
	for _, c := range []struct {
		name    string
		options codegen.OpenAIOptions
		refused string
		want    string // a parameter that the second request has
		omitted string // a parameter that it does not have
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
			"a name that OpenAI's models have, on an old server",
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
			"no temperature, named only in the message",
			codegen.OpenAIOptions{Temperature: &temperature},
			"temperature_refused_in_words", "stream_options", "temperature",
		},
		{
			"server that names no parameter",
			codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"},
			"extra_fields_refused",
			"max_completion_tokens", "stream_options",
		},
	} {
		e := newEndpoint(t, c.refused, "program")
		writer := e.writer(c.options, codegen.WriterOptions{})
		for range 2 {
			if _, err := writer.Write(t.Context(), request, codegen.Call{}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if len(e.requests) != 3 {
			t.Errorf("%s: %d requests for two programs, want 3: the parameters are remembered", c.name,
				len(e.requests))
		}
		for _, r := range e.requests[1:] {
			if _, ok := r[c.want]; !ok {
				t.Errorf("%s: request %v lacks %s", c.name, r, c.want)
			}
			if _, ok := r[c.omitted]; ok {
				t.Errorf("%s: request still has %s", c.name, c.omitted)
			}
		}
	}
}

// If a request also fails with other parameters, the parameters were not the cause, and the next program starts with
// the first ones again.
func TestWriteRemembersOnlyParametersThatHelped(t *testing.T) {
	e := newEndpoint(t, "extra_fields_refused", "extra_fields_refused", "program")
	writer := e.writer(codegen.OpenAIOptions{BaseURL: "http://127.0.0.1:1/v1"}, codegen.WriterOptions{})
	_, err := writer.Write(t.Context(), request, codegen.Call{})
	if failed, ok := errors.AsType[*codegen.ModelError](err); !ok || failed.Kind != codegen.BadRequest ||
		len(e.requests) != 2 {
		t.Fatalf("first: %v after %d requests, want %s after 2", err, len(e.requests), codegen.BadRequest)
	}
	if _, err := writer.Write(t.Context(), request, codegen.Call{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"max_tokens", "stream_options"} {
		if _, ok := e.requests[2][name]; !ok {
			t.Errorf("the next request lacks %s: %v", name, e.requests[2])
		}
	}
}

func TestAzure(t *testing.T) {
	e := newEndpoint(t, "program")
	_, err := e.writer(codegen.OpenAIOptions{
		BaseURL: "https://r.cognitiveservices.azure.com/", Deployment: "my chat",
		APIVersion: "2024-12-01-preview",
	}, codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
	want := "https://r.cognitiveservices.azure.com/openai/deployments/my%20chat/chat/completions" +
		"?api-version=2024-12-01-preview"
	if err != nil || e.urls[0] != want || e.headers[0].Get("Api-Key") != testKey ||
		e.headers[0].Get("Authorization") != "" {
		t.Errorf("request to %s, %v, want %s with the header Api-Key", e.urls[0], err, want)
	}
}

// failures are the responses that yield no program; see recordedResponse.
var failures = []struct {
	file     string
	kind     codegen.Kind
	requests int
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
	{"invalid_json", codegen.BadResponse, 3},
	{"stream_error", codegen.BadResponse, 3},
	{"ollama-0.17.4/unknown_model", codegen.UnknownModel, 1},
	{"ollama-0.17.4/invalid_request", codegen.BadRequest, 2}, // names no parameter, so one more request with others
	{"ollama-0.17.4/length", codegen.TooLong, 1},
	{"ollama-0.17.4/busy", codegen.Unavailable, 3},
	{"ollama-0.17.4-model-killed/killed", codegen.BadResponse, 3},
	{"ollama-0.17.4-server-killed/killed", codegen.BadResponse, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/wrong_key", codegen.Unauthorised, 1},
	{"nginx-1.22.1-before-ollama-0.17.4/busy", codegen.RateLimited, 3},
	{"nginx-1.22.1-before-ollama-0.17.4/too_long", codegen.TooLong, 1},
	{"nginx-1.22.1-ollama-slow/length", codegen.Unavailable, 3},
	{"nginx-1.22.1-ollama-stopped/length", codegen.Unavailable, 3},
	{"nginx-1.22.1-ollama-killed/killed", codegen.BadResponse, 3},
}

func TestWriteFails(t *testing.T) {
	for _, c := range failures {
		synctest.Test(t, func(t *testing.T) {
			e := newEndpoint(t, c.file)
			writer := e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{})
			_, err := writer.Write(t.Context(), request, codegen.Call{})
			failed, ok := errors.AsType[*codegen.ModelError](err)
			if !ok || failed.Kind != c.kind || len(e.requests) != c.requests {
				t.Errorf("%s: %v after %d requests, want %s after %d", c.file, err, len(e.requests), c.kind, c.requests)
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("%s: the error contains the key: %v", c.file, err)
			}
			program, err := codegen.Generate(t.Context(), writer, rules.Write, request, codegen.Call{})
			if err != nil || program.By != codegen.ByRules || !strings.Contains(program.Fallback, string(c.kind)) {
				t.Errorf("%s: Generate = %+v, %v, want the rules' program and the cause", c.file, program, err)
			}
		})
	}
}

func TestWriteHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(t, "rate_limited", "server_error", "program")
		begin := time.Now()
		_, err := e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
		if err != nil || time.Since(begin) != 8*time.Second {
			t.Errorf("429 with Retry-After 7, then 500: %v after %v, want a program after 7s and 1s", err,
				time.Since(begin))
		}
	})
}

func TestWriteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint(t)
		e.hang = true
		begin := time.Now()
		_, err := e.writer(codegen.OpenAIOptions{},
			codegen.WriterOptions{Timeout: 10 * time.Second}).Write(t.Context(), request, codegen.Call{})
		failed, ok := errors.AsType[*codegen.ModelError](err)
		if !ok || failed.Error() != "model_timeout: no program within 10s" || time.Since(begin) != 10*time.Second {
			t.Errorf("endpoint that hangs: %v after %v, want a timeout after 10s", err, time.Since(begin))
		}
	})
}

func TestBudget(t *testing.T) {
	e := newEndpoint(t, "program")
	task, tenant := codegen.NewBudget(100_000), codegen.NewBudget(4_600)
	writer := e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{})
	if _, err := writer.Write(t.Context(), request,
		codegen.Call{Budgets: []*codegen.Budget{task, tenant, nil}}); err != nil {
		t.Fatal(err)
	}
	if task.Left() != 100_000-450 || tenant.Left() != 4_600-450 {
		t.Errorf("left %d and %d, want 450 tokens less in both", task.Left(), tenant.Left())
	}
	_, err := writer.Write(t.Context(), request, codegen.Call{Budgets: []*codegen.Budget{task, tenant}})
	failed, ok := errors.AsType[*codegen.ModelError](err)
	if !ok || failed.Kind != codegen.OverBudget || len(e.requests) != 1 || task.Left() != 100_000-450 {
		t.Errorf("second call: %v, %d requests, task left %d, want %s without a request", err, len(e.requests),
			task.Left(), codegen.OverBudget)
	}
}

func TestUsageIsEstimatedIfTheEndpointReportsNone(t *testing.T) {
	program, err := newEndpoint(t, "program_without_usage").writer(codegen.OpenAIOptions{},
		codegen.WriterOptions{}).Write(t.Context(), request, codegen.Call{})
	if err != nil || !program.Usage.Estimated || program.Usage.PromptTokens < 200 ||
		program.Usage.CompletionTokens < 20 {
		t.Errorf("usage = %+v, %v, want an estimate", program.Usage, err)
	}
}

func TestRepairShowsTheErrorAndTheCalls(t *testing.T) {
	e := newEndpoint(t, "program")
	_, err := e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}).Repair(t.Context(), request, codegen.Failure{
		Program: "x = 1 / 0", Error: "ZeroDivisionError </error> line 1",
		Done: []string{"database.execute(...) -> 1 row"},
	}, codegen.Call{})
	if err != nil {
		t.Fatal(err)
	}
	messages := e.requests[0]["messages"].([]any)
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

func TestGenerateWithoutModelAndRules(t *testing.T) {
	e := newEndpoint(t, "unauthorised")
	_, err := codegen.Generate(t.Context(), e.writer(codegen.OpenAIOptions{}, codegen.WriterOptions{}), rules.Write,
		codegen.Request{Task: "write a poem about the sea"}, codegen.Call{})
	_, fromRules := errors.AsType[*codegen.CodeRequiredError](err)
	modelErr, fromModel := errors.AsType[*codegen.ModelError](err)
	if !fromRules || !fromModel || modelErr.Kind != codegen.Unauthorised {
		t.Errorf("Generate error = %v, want both the rules' and the model's", err)
	}
	if _, err := codegen.Generate(t.Context(), nil, rules.Write, codegen.Request{Task: "write a poem"},
		codegen.Call{}); err == nil {
		t.Error("Generate of a task that the rules do not understand, without a writer = nil, want code_required")
	}
}
