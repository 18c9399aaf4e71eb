package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
)

// world is the environment of an execution: a catalogue, tools that record their calls, and a journal and an
// audit that can fail.
type world struct {
	t   testing.TB
	mu  sync.Mutex
	cfg broker.Config

	made    []string // tool name and arguments of the calls that reached a tool
	journal map[broker.Key]broker.JournalEntry
	version uint64 // version of the latest entry
	order   []broker.Key
	log     []string // the order of effects
	begun   []broker.AuditRecord
	ended   []broker.AuditRecord
	decided []broker.AuditRecord
	files   map[string][]byte

	reply                   map[string]func(tools.Request) (tools.Result, error)
	failIntent, failAudit   error
	failDecided, failEnd    error
	failRecord, failLookup  error
	blockRecord, blockReply chan struct{}
}

func object(s string) json.RawMessage { return json.RawMessage(s) }

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{
		t: tb, journal: map[broker.Key]broker.JournalEntry{}, files: map[string][]byte{},
		reply: map[string]func(tools.Request) (tools.Result, error){},
	}
	no, yes := false, true
	add := func(name string, state tools.State, a tools.Annotations, in, out string) {
		d := tools.Definition{Name: name, InputSchema: object(in), Annotations: a}
		if out != "" {
			d.OutputSchema = object(out)
		}
		w.cfg.Catalogue.Tools = append(w.cfg.Catalogue.Tools, tools.Tool{
			Server: "s", Name: name, State: state, Module: "servers.s." + name, Function: name,
			Signature:   name + "(...)",
			InputSchema: d.InputSchema, OutputSchema: d.OutputSchema, Annotations: a, Hash: d.Hash(),
		})
	}
	w.cfg.Catalogue = &tools.Listing{}
	schema := `{"type":"object","properties":{"location":{"type":"string"},"count":{"type":"integer","maximum":5}},` +
		`"required":["location"],"additionalProperties":false}`
	add("get", tools.Approved, tools.Annotations{ReadOnly: true}, schema, "")
	add("put", tools.Approved, tools.Annotations{Destructive: &no}, `{"type":"object"}`, "")
	add("set", tools.Approved, tools.Annotations{Destructive: &no, Idempotent: true}, `{"type":"object"}`, "")
	add("drop", tools.Approved, tools.Annotations{Destructive: &yes}, `{"type":"object"}`, "")
	add("silent", tools.Approved, tools.Annotations{}, `{"type":"object"}`, "") // says nothing about its effects
	add("typed", tools.Approved, tools.Annotations{ReadOnly: true}, `{"type":"object"}`,
		`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	add("wrapped", tools.Approved, tools.Annotations{ReadOnly: true}, `{"type":"object"}`,
		`{"type":"object","properties":{"result":{"type":"number"}},"x-fastmcp-wrap-result":true}`)
	add("free", tools.Approved, tools.Annotations{ReadOnly: true},
		`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","pattern":"^x"},"c":{"enum":["`+
			strings.Repeat("long", 100)+`","d"]}},"required":["a"]}`, "")
	add("open", tools.Approved, tools.Annotations{ReadOnly: true},
		`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":true}`, "")
	add("remote", tools.Approved, tools.Annotations{ReadOnly: true}, `{"$ref":"file:///etc/passwd"}`, "")
	add("new", tools.Pending, tools.Annotations{}, `{}`, "")
	add("other", tools.Changed, tools.Annotations{}, `{}`, "")
	add("local", tools.Local, tools.Annotations{}, ``, "")
	w.cfg.Catalogue = tools.NewListing(w.cfg.Catalogue.Tools)
	w.cfg.Task = broker.Task{ID: "t1", Tenant: "acme", Session: "x", Run: 1, Allow: []string{"*"}}
	w.cfg.Upstream, w.cfg.Journal, w.cfg.Audit = w.upstream, (*journal)(w), (*audit)(w)
	w.cfg.Policy = broker.Policy{Destructive: broker.Allow}
	w.cfg.Hooks.Spill = func(_ context.Context, name, mediaType string, data []byte) (string, error) {
		w.files[name] = data
		return "artifacts/" + name, nil
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) upstream(ctx context.Context, r tools.Request) (tools.Result, error) {
	w.mu.Lock()
	w.made = append(w.made, r.Tool+string(r.Args))
	w.note("call %s", r.Tool)
	f, block := w.reply[r.Tool], w.blockReply
	w.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return tools.Result{}, context.Cause(ctx)
		}
	}
	if f == nil {
		return text("ok"), nil
	}
	return f(r)
}

func text(s string) tools.Result {
	return tools.Result{Content: []tools.Content{{Type: "text", Text: s}}}
}

type journal world

func (j *journal) Lookup(context.Context, string, string) ([]broker.JournalEntry, error) {
	var out []broker.JournalEntry
	for _, k := range j.order {
		out = append(out, j.journal[k])
	}
	return out, j.failLookup
}

func (j *journal) put(r broker.JournalEntry) {
	j.version++
	r.Version = j.version
	if _, known := j.journal[r.Key]; !known {
		j.order = append(j.order, r.Key)
	}
	j.journal[r.Key] = r
}

func (j *journal) Intent(_ context.Context, r broker.JournalEntry) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.State == broker.Intended {
		(*world)(j).note("intent %s", r.Key.Tool)
	} else {
		(*world)(j).note("record %s %s", r.Key.Tool, r.State)
	}
	if j.failIntent != nil {
		return 0, j.failIntent
	}
	if j.journal[r.Key].Version != r.Version {
		return 0, broker.ErrOvertaken
	}
	j.put(r)
	return j.version, nil
}

func (j *journal) Record(_ context.Context, r broker.JournalEntry) error {
	if j.blockRecord != nil {
		<-j.blockRecord
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	(*world)(j).note("record %s %s", r.Key.Tool, r.State)
	if j.failRecord == nil {
		j.put(r)
	}
	return j.failRecord
}

type audit world

func (a *audit) Begin(_ context.Context, e broker.AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failAudit == nil {
		a.begun = append(a.begun, e)
		(*world)(a).note("audit begin")
	}
	return a.failAudit
}

func (a *audit) Decided(_ context.Context, e broker.AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decided = append(a.decided, e)
	(*world)(a).note("audit decided")
	return a.failDecided
}

func (a *audit) End(_ context.Context, e broker.AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = append(a.ended, e)
	(*world)(a).note("audit end")
	return a.failEnd
}

func (w *world) open() *broker.Execution { return w.openUntil(w.t.Context()) }

// openUntil opens an execution in a process that exits when exit ends.
func (w *world) openUntil(exit context.Context) *broker.Execution {
	w.cfg.Exit = exit //nolint:fatcontext // it is not nested
	w.t.Helper()
	e, err := broker.New(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// next returns the next run of the task, after a crash.
func (w *world) next() *broker.Execution {
	w.cfg.Task.Run++
	w.mu.Lock() // the audit of read-only calls may still be in progress
	w.made, w.log = nil, nil
	w.mu.Unlock()
	return w.open()
}

func (w *world) call(e *broker.Execution, tool, args string) (string, error) {
	w.t.Helper()
	r, err := e.Call(w.t.Context(), broker.Call{Server: "s", Tool: tool, Args: object(args)})
	return string(r.Value), err
}

func code(err error) string {
	if e, ok := errors.AsType[*broker.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestOrderOfEffects(t *testing.T) {
	w := newWorld(t)
	w.cfg.Hooks.Restore = func(_ context.Context, c broker.Call) (json.RawMessage, error) {
		w.note("restore")
		return object(strings.ReplaceAll(string(c.Args), "[EMAIL_1]", "a@b.c")), nil
	}
	w.cfg.Hooks.Tokenise = func(_ context.Context, _ broker.Call, v json.RawMessage) (json.RawMessage, error) {
		w.note("tokenise")
		return object(strings.ReplaceAll(string(v), "a@b.c", "[EMAIL_1]")), nil
	}
	w.reply["put"] = func(tools.Request) (tools.Result, error) { return text("sent to a@b.c"), nil }
	e := w.open()
	const sent = "\t{ \"t\\u006f\" : \"[EMAIL_1]\" }\n"
	got, err := w.call(e, "put", sent)
	if err != nil || got != `"sent to [EMAIL_1]"` {
		t.Errorf("put = %s, %v; want \"sent to [EMAIL_1]\"", got, err)
	}
	want := []string{"audit begin", "restore", "intent put", "call put", "tokenise", "record put answered", "audit end"}
	if diff := cmp.Diff(want, w.log); diff != "" {
		t.Errorf("order of effects (-want +got):\n%s", diff)
	}
	if w.made[0] != `put{"to":"a@b.c"}` {
		t.Errorf("the tool got %s, want the restored value, and the arguments re-encoded", w.made[0])
	}
	for _, r := range w.journal {
		if string(r.Value) != `"sent to [EMAIL_1]"` {
			t.Errorf("the journal has %s, want the tokenised result", r.Value)
		}
	}
	record := w.ended[0]
	if record.Tenant != "acme" || record.Server != "s" || record.Tool != "put" || !record.OK ||
		record.ArgsBytes != len(sent) || record.ResultBytes != len(got) || len(e.Calls()) != 1 {
		t.Errorf("audit = %+v, want one audited call of acme", record)
	}
}

// A call that a program reports must name a local tool, and cannot take longer than the program has run.
func TestLocalCalls(t *testing.T) {
	w := newWorld(t)
	e := w.open()
	e.AddLocal("s", "local", 1e8, true)
	e.AddLocal("s", "get", 1, true)
	e.AddLocal("s", "nothing", 1, true)
	e.AddLocal("s", "local", 0, false)
	got := e.Calls()
	if len(got) != 2 || got[0].Tool != "local" || !got[0].OK || !got[0].Local || got[0].MS > 60_000 || got[1].OK {
		t.Errorf("Calls() = %+v, want two calls of s/local, none longer than the test", got)
	}
	if len(w.begun) != 0 {
		t.Errorf("audit = %+v, want no records", w.begun)
	}
}

func TestRejectedCalls(t *testing.T) {
	w := newWorld(t)
	w.cfg.Task.Allow = []string{"s/*"}
	w.cfg.Policy.Tools = map[string]broker.Decision{"s/set": broker.Deny}
	e := w.open()
	for _, test := range []struct {
		server, tool, args string
		code               string
		text               string
	}{
		{"s", "gett", `{}`, errcode.Unknown, `unknown tool "s/gett"; did you mean s/get`},
		{"z", "get", `{}`, errcode.Unknown, `did you mean s/get`},
		{"s", "get", `{"locaton":"x"}`, errcode.Unknown, `unknown argument "locaton"; did you mean location`},
		{"s", "get", `{"location":"x","unit":1}`, errcode.Unknown, `unknown argument "unit"`},
		{"s", "get", `{"location":1}`, errcode.BadArguments, "/location: "},
		{"s", "get", `{"location":"x","count":6}`, errcode.BadArguments, "/count: "},
		{"s", "get", `{}`, errcode.BadArguments, "location"},
		{"s", "free", `{"A":1}`, errcode.Unknown, `unknown argument "A"; did you mean a`},
		{
			"s", "free", `{"a":"x","more":1}`, errcode.BadArguments, "/a: got string, want integer",
		}, // the extra argument "more" is allowed
		{"s", "open", `{"more":1}`, errcode.BadArguments, "missing property 'a'"},
		{"s", "free", `{"a":1,"b":"s3cr3t"}`, errcode.BadArguments, "/b: does not match the pattern ^x (the tool"},
		{"s", "free", `{"a":1,"c":"s3cr3t"}`, errcode.BadArguments, "longlo… (the tool"},
		{"s", "get", `[1]`, errcode.BadArguments, "a JSON object"},
		{"s", "get", `{`, errcode.BadArguments, "a JSON object"},
		{"s", "get", `{"location":"x","location":"y"}`, errcode.BadArguments, `/location: the name occurs twice`},
		{"s", "get", `{"location":"x","loc\u0061tion":"y"}`, errcode.BadArguments, "/location: the name occurs twice"},
		{"s", "put", `{"a":[{"b":{"c":1,"c":2}}]}`, errcode.BadArguments, "/a/0/b/c: the name occurs twice"},
		{"s", "get", "{\"location\":\"\xff\"}", errcode.BadArguments, "invalid UTF-8"},
		{"s", "put", `{"a":-9` + strings.Repeat("9", 4300) + "}", errcode.BadArguments, "more than 4300 digits"},
		{"s", "open", `{"a":1,"A":2}`, errcode.Unknown, `unknown argument "A"; did you mean a`},
		{"s", "new", `{}`, errcode.Forbidden, "tools approve s/new"},
		{
			"s", "other", `{}`, errcode.ToolChanged,
			"after it was approved; it is now other(...) (an operator must approve the change: tools approve s/other)",
		},
		{"s", "local", `{}`, errcode.Unknown, "from servers.s import local"},
		{"s", "set", `{}`, errcode.Forbidden, "policy denies"},
	} {
		r, err := e.Call(t.Context(), broker.Call{Server: test.server, Tool: test.tool, Args: object(test.args)})
		if code(err) != test.code || !strings.Contains(err.Error(), test.text) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s/%s %s = %s, %v (%s), want %s with %q", test.server, test.tool, test.args, r.Value, err,
				code(err), test.code, test.text)
		}
	}
	if len(w.made) != 0 || len(w.journal) != 0 {
		t.Errorf("calls %v, journal %v, want both empty", w.made, w.journal)
	}
	if len(w.begun) != 24 || len(w.ended) != 24 {
		t.Errorf("the audit has %d beginnings and %d ends, want 24 of each", len(w.begun), len(w.ended))
	}
	// If a schema does not compile, validation is left to the server. Its references are not loaded.
	if _, err := w.call(e, "remote", `{"x":1}`); err != nil {
		t.Error(err)
	}
	// The program was written for a different definition.
	_, err := e.Call(t.Context(),
		broker.Call{Server: "s", Tool: "get", Args: object(`{"location":"x"}`), Hash: "sha256:old"})
	if code(err) != errcode.ToolChanged ||
		!strings.HasSuffix(err.Error(), "written for a different definition; it is now get(...) "+
			"(the module has the current definition: from servers.s import get)") {
		t.Errorf("get with an old hash = %v, want tool_changed with the new signature and its module", err)
	}
}

// Programs choose the names of unknown tools. Traces and audit records do not contain them; the task's own list of
// calls does.
func TestUnknownNamesAreNotRecorded(t *testing.T) {
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	w.cfg.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("")
	e := w.open()
	for _, name := range [][2]string{{"s", "jane-doe"}, {"jane-doe", "get"}, {"jane-doe", "jane-doe\n"}} {
		if _, err := e.Call(t.Context(), broker.Call{Server: name[0], Tool: name[1], Args: object(`{}`)}); err == nil {
			t.Errorf("Call(%s) = nil error, want an error", name)
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var recorded strings.Builder
	fmt.Fprintln(&recorded, w.begun, w.ended)
	for _, s := range spans.Ended() {
		fmt.Fprintln(&recorded, s.Name(), s.Attributes(), s.Events(), s.Status())
	}
	got := recorded.String()
	if strings.Contains(got, "jane-doe") || len(w.begun) != 3 || len(spans.Ended()) != 3 ||
		strings.Count(got, "(unknown)") != 15 {
		t.Errorf("recorded %s; want three audit records and spans, with (unknown) instead of the names", got)
	}
	if calls := e.Calls(); len(calls) != 3 || calls[2].Server != "jane-doe" || calls[2].Tool != "jane-doe<U+000A>" {
		t.Errorf("Calls() = %+v, want the names that the program used, on one line", calls)
	}
}

func TestAllowLists(t *testing.T) {
	w := newWorld(t)
	w.cfg.Task.Allow = []string{"s/get", "z/*"}
	e := w.open()
	if _, err := w.call(e, "get", `{"location":"x"}`); err != nil {
		t.Error(err)
	}
	if _, err := w.call(e, "put", `{}`); code(err) != errcode.Forbidden {
		t.Errorf("put, which the list does not allow = %v, want forbidden", err)
	}
	// Errors do not name tools that the task may not use, whether or not the list allows the name.
	for _, id := range []string{"s/putt", "z/put", "s/gett"} {
		server, tool, _ := strings.Cut(id, "/")
		_, err := e.Call(t.Context(), broker.Call{Server: server, Tool: tool, Args: json.RawMessage(`{}`)})
		want := fmt.Sprintf("unknown tool %q; did you mean s/get?", id)
		if code(err) != errcode.Unknown || err.Error() != want {
			t.Errorf("%s, which does not exist = %v, want %s", id, err, want)
		}
	}
	w.cfg.Task.Allow = nil
	if _, err := w.call(w.open(), "get", `{"location":"x"}`); code(err) != errcode.Forbidden {
		t.Errorf("get without an allow-list = %v, want forbidden", err)
	}
}

func orForbidden(c string) string {
	if c == "" {
		return errcode.Forbidden
	}
	return c
}

func TestPolicies(t *testing.T) {
	for _, test := range []struct {
		policy            broker.Policy
		outcome           broker.ApprovalState
		drop, silent, put bool   // whether the tool is called
		code              string // for the tools that are not called; the default is forbidden
	}{
		{policy: broker.Policy{Destructive: broker.Allow}, drop: true, silent: true, put: true},
		{policy: broker.Policy{Destructive: broker.Deny}, put: true},
		{policy: broker.Policy{Destructive: broker.RequireApproval}, put: true, code: errcode.ApprovalRequired},
		{
			policy: broker.Policy{Destructive: broker.RequireApproval}, outcome: broker.Granted,
			drop: true, silent: true, put: true,
		},
		{policy: broker.Policy{Destructive: broker.RequireApproval}, outcome: broker.Denied, put: true},
		{
			policy: broker.Policy{Destructive: broker.RequireApproval}, outcome: broker.Expired, put: true,
			code: errcode.ApprovalRequired,
		},
		{
			policy: broker.Policy{Destructive: broker.RequireApproval}, outcome: "nonsense", put: true,
			code: errcode.ApprovalRequired,
		},
		{
			policy: broker.Policy{
				Destructive: broker.Deny, Tools: map[string]broker.Decision{"s/drop": broker.Allow, "s/*": broker.Deny},
			},
			drop: true,
		},
		{ // the names that programs import
			policy: broker.Policy{
				Destructive: broker.Deny,
				Tools:       map[string]broker.Decision{"py/put_": broker.Deny, "py/*": broker.Allow},
			},
			drop: true, silent: true,
		},
	} {
		w := newWorld(t)
		for i := range w.cfg.Catalogue.Tools {
			tool := &w.cfg.Catalogue.Tools[i]
			tool.Module, tool.Function = "servers.py."+tool.Name, tool.Name+"_"
		}
		w.cfg.Policy = test.policy
		if test.outcome != "" {
			w.cfg.Hooks.Approve = func(_ context.Context, q broker.ApprovalRequest) (broker.Approval, error) {
				if q.Task.ID != "t1" || q.Server != "s" || q.Signature != q.Tool+"(...)" || string(q.Args) != `{}` {
					t.Errorf("approval request %+v with %s, want task t1, server s, the signature and {}", q, q.Args)
				}
				return broker.Approval{State: test.outcome, By: "alice"}, nil
			}
		}
		e := w.open()
		for tool, want := range map[string]bool{"drop": test.drop, "silent": test.silent, "put": test.put} {
			_, err := w.call(e, tool, `{}`)
			if (err == nil) != want || (err != nil && code(err) != orForbidden(test.code)) {
				t.Errorf("%+v: %s: %v, want called %t", test.policy, tool, err, want)
			}
		}
	}
	w := newWorld(t)
	w.cfg.Policy = broker.Policy{Destructive: "maybe"}
	if _, err := broker.New(t.Context(), w.cfg); err == nil ||
		!strings.Contains(err.Error(), `["allow" "deny" "approve"]`) {
		t.Errorf("New with an invalid policy = %v, want the valid decisions", err)
	}
}

// A call is made only after its approval is audited. Denials are audited, too.
func TestApprovalIsAudited(t *testing.T) {
	for _, outcome := range []broker.ApprovalState{broker.Granted, broker.Denied, broker.Expired} {
		w := newWorld(t)
		w.cfg.Policy = broker.Policy{Destructive: broker.RequireApproval}
		var names []string
		w.cfg.Hooks.Approve = func(_ context.Context, q broker.ApprovalRequest) (broker.Approval, error) {
			names = append(names, q.Call)
			if want := "may delete or overwrite; may reach the outside world"; q.Effects != want {
				t.Errorf("effects of drop = %q, want %q", q.Effects, want)
			}
			return broker.Approval{State: outcome, By: "alice", Reason: "not today"}, nil
		}
		e := w.open()
		_, err := w.call(e, "drop", `{}`)
		if outcome == broker.Denied && (err == nil || err.Error() != "the call was denied by alice: not today") {
			t.Errorf("drop, which is denied = %v, want who denied it and why", err)
		}
		if len(w.decided) != 1 || w.decided[0].ApprovedBy != "alice" || w.decided[0].Approval != outcome ||
			w.decided[0].Call != names[0] {
			t.Fatalf("%s: audited decisions = %+v, want alice's decision", outcome, w.decided)
		}
		if end := w.ended[0]; end.ApprovedBy != "alice" || end.Approval != outcome ||
			end.OK != (outcome == broker.Granted) {
			t.Errorf("%s: audited end = %+v, want alice's decision", outcome, end)
		}
		if outcome != broker.Granted {
			continue
		}
		if diff := cmp.Diff([]string{
			"audit begin", "audit decided", "intent drop", "call drop", "record drop answered", "audit end",
		}, w.log); diff != "" {
			t.Errorf("order of effects (-want +got):\n%s", diff)
		}
		if _, err := w.call(e, "drop", `{}`); err != nil || names[1] == names[0] {
			t.Errorf("the name of an equal call = %q, %v; want another name", names[1], err)
		}
		// The next run requests no approval of a recorded call.
		e = w.next()
		for range 2 {
			if _, err := w.call(e, "drop", `{}`); err != nil || len(w.made) != 0 {
				t.Errorf("drop in the next run: calls %v, error %v; want a replay", w.made, err)
			}
		}
		if len(names) != 2 {
			t.Errorf("%d approval requests for two calls, want 2", len(names))
		}
	}
}

// An approval request has the privacy tokens in the arguments, not their values.
func TestApprovalRequestHasTokens(t *testing.T) {
	w := newWorld(t)
	w.cfg.Policy = broker.Policy{Destructive: broker.RequireApproval}
	w.cfg.Hooks.Restore = func(context.Context, broker.Call) (json.RawMessage, error) {
		return object(`{"to":"a@b.c"}`), nil
	}
	var requestArgs string
	w.cfg.Hooks.Approve = func(_ context.Context, q broker.ApprovalRequest) (broker.Approval, error) {
		requestArgs = string(q.Args)
		return broker.Approval{State: broker.Granted}, nil
	}
	if _, err := w.call(w.open(), "drop", `{"to":"[EMAIL_1]"}`); err != nil ||
		requestArgs != `{"to":"[EMAIL_1]"}` || w.made[0] != `drop{"to":"a@b.c"}` {
		t.Errorf("approval request with %s, calls %v, error %v; want privacy tokens only in the request",
			requestArgs, w.made, err)
	}
}

func TestNarrow(t *testing.T) {
	for _, test := range []struct{ list, by, want []string }{
		{[]string{"*"}, []string{"*"}, []string{"*"}},
		{[]string{"*"}, []string{"a/*", "b/x"}, []string{"a/*", "b/x"}},
		{[]string{"a/x", "b/*", "c/*"}, []string{"a/*", "b/y", "d/*"}, []string{"a/x", "b/y"}},
		{[]string{"a/x", "a/*"}, []string{"a/*"}, []string{"a/*", "a/x"}},
		{[]string{"aa/*"}, []string{"a/*"}, []string{}},
		{[]string{"a"}, []string{"a/*"}, []string{}},
		{nil, []string{"*"}, []string{}},
		{[]string{"*"}, nil, []string{}},
	} {
		if got := broker.Narrow(test.list, test.by); cmp.Diff(test.want, got) != "" {
			t.Errorf("Narrow(%q, %q) = %q, want %q", test.list, test.by, got, test.want)
		}
	}
}

// Narrow allows a tool if and only if both lists do.
func TestNarrowAllowsWhatBothAllow(t *testing.T) {
	pattern := rapid.SampledFrom([]string{
		"*", "a/*", "b/*", "a/x", "a/y", "b/x", "ab/*", "ab/x", "nonsense", "a/", "/x",
	})
	rapid.Check(t, func(t *rapid.T) {
		one, two := rapid.SliceOfN(pattern, 0, 4).Draw(t, "one"), rapid.SliceOfN(pattern, 0, 4).Draw(t, "two")
		both := broker.Narrow(one, two)
		for _, server := range []string{"a", "b", "ab", "c"} {
			for _, tool := range []string{"x", "y"} {
				want := broker.Allowed(one, server, tool) && broker.Allowed(two, server, tool)
				if got := broker.Allowed(both, server, tool); got != want {
					t.Fatalf("Narrow(%q, %q) = %q, which allows %s/%s: %t, want %t", one, two, both, server, tool,
						got, want)
				}
			}
		}
	})
}

func TestResults(t *testing.T) {
	w := newWorld(t)
	w.cfg.SpillAt = 100
	e := w.open()
	big := `{"rows":"` + strings.Repeat("x", 200) + `"}`
	n := 0
	for _, test := range []struct {
		tool string
		res  tools.Result
		want string
		code string
	}{
		{"put", text("hello"), `"hello"`, ""},
		{"put", text("02134"), `"02134"`, ""},
		{"put", text("42"), `"42"`, ""},
		{"put", text(` {"a": [1]} `), `{"a": [1]}`, ""},
		{"put", text(`{broken`), `"{broken"`, ""},
		{"put", tools.Result{}, `null`, ""},
		{
			"put",
			tools.Result{Content: []tools.Content{{Type: "text", Text: "a"}, {Type: "text", Text: "[1]"}}},
			`["a",[1]]`, "",
		},
		{
			"put",
			tools.Result{Structured: object(`{"a":1}`), Content: []tools.Content{{Type: "text", Text: "x"}}},
			`{"a":1}`, "",
		},
		{"typed", tools.Result{Structured: object(`{"n":1}`)}, `{"n":1}`, ""},
		{"typed", tools.Result{Structured: object(`{"n":"x"}`)}, "", errcode.Unavailable},
		{"wrapped", tools.Result{Structured: object(`{"result":10}`)}, `10`, ""},
		{
			"put",
			tools.Result{IsError: true, Content: []tools.Content{{Type: "text", Text: "no such\u202e row"}}},
			"",
			errcode.ToolFailed,
		},
		{"put", tools.Result{IsError: true}, "", errcode.ToolFailed},
		{
			"put",
			tools.Result{Content: []tools.Content{{Type: "image", MediaType: "image/png", Data: []byte("png")}}},
			"png", "",
		},
		{"put", tools.Result{Structured: object(big)}, "json", ""},
	} {
		n++
		w.reply[test.tool] = func(tools.Request) (tools.Result, error) { return test.res, nil }
		got, err := w.call(e, test.tool, fmt.Sprintf(`{"n":%d}`, n))
		if test.want == "png" || test.want == "json" {
			var f struct {
				Path, MediaType string
				Bytes           int
			}
			if err != nil || json.Unmarshal([]byte(got), &f) != nil || !strings.HasSuffix(f.Path, test.want) {
				t.Errorf("call %d = %s, %v, want a file", n, got, err)
				continue
			}
			if data := w.files[strings.TrimPrefix(f.Path, "artifacts/")]; len(data) != f.Bytes ||
				(test.want == "json" && string(data) != big) {
				t.Errorf("call %d: the file %s contains %q, want the data", n, f.Path, data)
			}
			continue
		}
		if got != test.want || code(err) != test.code {
			t.Errorf("call %d = %s, %v, want %s, %s", n, got, err, test.want, test.code)
		}
	}
	if record := w.ended[11]; record.Code != errcode.ToolFailed {
		t.Errorf("audited end of a failed call = %+v, want tool_failed", record)
	}
	w.cfg.Hooks.Spill = nil
	if _, err := w.call(w.open(), "put", `{"again":1}`); code(err) != errcode.ResultTooLarge {
		t.Errorf("a large result without Spill = %v, want result_too_large", err)
	}
}

// An error's message contains what the tool sent, truncated and printable: a value that does not match the output
// schema, or the structured content of the tool's error.
func TestToolContentInErrors(t *testing.T) {
	w := newWorld(t)
	e := w.open()
	long := strings.Repeat("x", 100_000)
	const hiddenRune = "\u202e"
	hidden := object(`{"n":"y` + hiddenRune + `","retry_after":7,"long":"` + long + `"}`)
	for i, test := range []struct {
		tool       string
		res        tools.Result
		want, lack string
	}{
		{
			"typed",
			tools.Result{Structured: hidden},
			`the result is {"n":"y<U+202E>","retry_after":7,"long":"xxx`, hiddenRune,
		},
		{
			"put",
			tools.Result{IsError: true, Structured: hidden, Content: text("rate limit").Content},
			`rate limit` + "\n" + `{"n":"y<U+202E>","retry_after":7`, hiddenRune,
		},
		{"put", tools.Result{IsError: true, Structured: object(`{"code": 5}`)}, `{"code": 5}`, "without a message"},
		{
			"put",
			tools.Result{IsError: true, Structured: object(`{"code":5}`), Content: text(`{ "code": 5 }`).Content},
			`{ "code": 5 }`, `{"code":5}`,
		},
	} {
		w.reply[test.tool] = func(tools.Request) (tools.Result, error) { return test.res, nil }
		_, err := w.call(e, test.tool, fmt.Sprintf(`{"n":%d}`, i))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), test.lack) ||
			len(err.Error()) > 10_000 {
			t.Errorf("%d: error %.200v, want %q in at most 10,000 bytes, without %q", i, err, test.want, test.lack)
		}
	}
}

// What a tool returns beside its structured content reaches the program, unless it only repeats it, and so does what
// it sends with an error. Files and large content are stored, and all of it is replayed.
func TestContentBesideStructure(t *testing.T) {
	note := func(s string) tools.Content { return tools.Content{Type: "text", Text: s} }
	png := tools.Content{Type: "image", MediaType: "image/PNG; x=y", Data: []byte("png")} // a file has image/png
	link := tools.Content{Type: "resource_link", URI: "x:/y", Text: "y", MediaType: "text/plain"}
	described := link
	described.Title, described.Description, described.Size = "Why", "All reasons.", new(int64(5))
	result := func(structured string, content ...tools.Content) tools.Result {
		return tools.Result{Structured: object(structured), Content: content}
	}
	failure := func(structured string, content ...tools.Content) tools.Result {
		return tools.Result{IsError: true, Structured: object(structured), Content: content}
	}
	long := strings.Repeat("x", 300)
	const file = `{"bytes":3,"media_type":"image/png","path":"F.png"}`
	const jsonFile = `{"bytes":310,"media_type":"application/json","path":"F.json"}`
	type got struct {
		Value, Content, Structured, Code string
		Files                            int
	}
	for name, test := range map[string]struct {
		tool string
		res  tools.Result
		want got
	}{
		"nothing": {"put", result(`{"n":1}`), got{Value: `{"n":1}`}},
		"structure as text": {
			"wrapped", tools.Result{Content: []tools.Content{note(`{"result":10}`)}}, got{Value: "10"},
		},
		"text without structure": {
			"wrapped",
			tools.Result{Content: []tools.Content{note("done")}},
			got{Code: "unavailable", Content: `["done"]`},
		},
		"structure as text beside a link": {
			"wrapped", tools.Result{Content: []tools.Content{
				note(`{"result":10}`), {Type: "resource_link", URI: "x:/7", Text: "7"},
			}}, got{Value: "10", Content: `[{"media_type":"","name":"7","uri":"x:/7"}]`},
		},
		"a link whose name is JSON": {
			"wrapped",
			tools.Result{Content: []tools.Content{{Type: "resource_link", URI: "x:/7", Text: `{"result":7}`}}},
			got{Code: "unavailable", Content: `[{"media_type":"","name":"{\"result\":7}","uri":"x:/7"}]`},
		},
		"neither":                      {"wrapped", tools.Result{}, got{Code: "unavailable"}},
		"no copies":                    {"put", result(`{"n":1,"a":"é"}`, note(`{ "a": "\u00e9", "n": 1 }`)), got{Value: `{"n":1,"a":"é"}`}},
		"no copies of a wrapped value": {"wrapped", result(`{"result":10}`, note("10")), got{Value: "10"}},
		"not quite a copy": {
			"wrapped", result(`{"result":10}`, note("10 apples")), got{Value: "10", Content: `["10 apples"]`},
		},
		"text, a file, a link and JSON": {
			"put", result(`{"n":1}`, note("a"), png, link, note(`[2]`)), got{
				Value: `{"n":1}`, Files: 1,
				Content: `["a",` + file + `,{"media_type":"text/plain","name":"y","uri":"x:/y"},[2]]`,
			},
		},
		"a link with a description": {
			"put", result(`{"n":1}`, described), got{
				Value: `{"n":1}`,
				Content: `[{"bytes":5,"description":"All reasons.","media_type":"text/plain","name":"y",` +
					`"title":"Why","uri":"x:/y"}]`,
			},
		},
		"large content": {
			"put", result(`{"n":1}`, note(long+"123456")), got{Value: `{"n":1}`, Content: `[` + jsonFile + `]`, Files: 1},
		},
		"content without structure": {
			"put", tools.Result{Content: []tools.Content{note("a"), png}}, got{Value: `["a",` + file + `]`, Files: 1},
		},
		"an error": {"put", failure(`{"retry":7}`, note("no"), png), got{
			Structured: `{"retry":7}`, Content: `["no",` + file + `]`, Code: errcode.ToolFailed, Files: 1,
		}},
		"a large error": {
			"put", failure(`{"big":"` + long + `"}`), got{Structured: jsonFile, Code: errcode.ToolFailed, Files: 1},
		},
		"an error without content": {"put", tools.Result{IsError: true}, got{Code: errcode.ToolFailed}},
		"a result that does not match": {
			"typed", result(`{"n":"x"}`, note("n")), got{Structured: `{"n":"x"}`, Content: `["n"]`, Code: errcode.Unavailable},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.SpillAt = 250
			w.reply[test.tool] = func(tools.Request) (tools.Result, error) { return test.res, nil }
			names := regexp.MustCompile(`artifacts/[^"]*\.`)
			short := func(v json.RawMessage) string { return names.ReplaceAllString(string(v), "F.") }
			for run, open := range []func() *broker.Execution{w.open, w.next} {
				e := open()
				clear(w.files)
				r, err := e.Call(t.Context(), broker.Call{Server: "s", Tool: test.tool, Args: object(`{}`)})
				is := got{Value: short(r.Value), Content: short(r.Content), Files: len(w.files)}
				if f, ok := errors.AsType[*broker.Error](err); ok {
					is.Structured, is.Content, is.Code = short(f.Structured), short(f.Content), f.Code
				}
				if diff := cmp.Diff(test.want, is); diff != "" {
					t.Errorf("run %d (-want +got):\n%s", run+1, diff)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if len(w.made) != 0 && test.want.Code != errcode.Unavailable {
				t.Errorf("the second run made the calls %v, want none", w.made)
			}
		})
	}
}

func TestUpstreamErrors(t *testing.T) {
	w := newWorld(t)
	e := w.open()
	i := 0
	for reason, want := range map[tools.Reason]string{
		tools.Down: errcode.Unavailable, tools.Lost: errcode.Unavailable, tools.Timeout: errcode.Timeout,
		tools.TooLarge: errcode.ResultTooLarge,
		tools.Drifted:  errcode.ToolChanged, tools.Refused: errcode.ToolFailed, tools.Protocol: errcode.Unavailable,
		"": errcode.Internal,
	} {
		i++
		sent := slices.Contains([]tools.Reason{tools.Lost, tools.Timeout, tools.TooLarge, tools.Protocol}, reason)
		w.reply["put"] = func(tools.Request) (tools.Result, error) {
			if reason == "" {
				return tools.Result{}, errors.New("a bug")
			}
			return tools.Result{}, &tools.UpstreamError{Reason: reason, Err: errors.New("because"), Sent: sent}
		}
		_, err := w.call(e, "put", fmt.Sprintf(`{"i":%d}`, i))
		if code(err) != want || strings.Contains(fmt.Sprint(err), "(the call may have taken effect)") != sent {
			t.Errorf("%s: %v (%s), want %s; in doubt: %v", reason, err, code(err), want, sent)
		}
	}
	states := map[broker.CallState]int{}
	for _, r := range w.journal {
		states[r.State]++
	}
	// Those that were sent, and the bug, leave the call in doubt. Refused is a result. The others were not made.
	if diff := cmp.Diff(map[broker.CallState]int{broker.Intended: 5, broker.Answered: 1, broker.NotMade: 2},
		states); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

// An operator approves the fleet's tools, but not those that a tenant's processes register.
func TestHintsOfDriftedTools(t *testing.T) {
	for state, want := range map[tools.State]string{
		tools.Approved:   "an operator must generate the tools again, and approve the change",
		tools.Registered: "submit the task again: it will use the definition that the tenant's processes register now",
	} {
		w := newWorld(t)
		w.cfg.Catalogue = tools.NewListing([]tools.Tool{{
			Server: "s", Name: "put", State: state, InputSchema: json.RawMessage(`{"type":"object"}`),
		}})
		w.reply["put"] = func(tools.Request) (tools.Result, error) {
			return tools.Result{}, &tools.UpstreamError{Reason: tools.Drifted, Err: errors.New("because")}
		}
		_, err := w.call(w.open(), "put", `{}`)
		if e, ok := errors.AsType[*broker.Error](err); !ok || e.Code != errcode.ToolChanged || e.Hint != want {
			t.Errorf("%s tool that drifted: %v, want the hint %q", state, err, want)
		}
	}
}

// The error with which a server answers a call has its message and its data. They are tokenised, as a result is.
func TestErrorsOfServers(t *testing.T) {
	w := newWorld(t)
	w.cfg.Hooks.Tokenise = func(_ context.Context, _ broker.Call, v json.RawMessage) (json.RawMessage, error) {
		return bytes.ReplaceAll(v, []byte("ann"), []byte("<NAME_1>")), nil
	}
	e := w.open()
	for message, want := range map[string]string{
		"no ann": "no <NAME_1>", "": "the tool failed without a message",
	} {
		w.reply["put"] = func(tools.Request) (tools.Result, error) {
			return tools.Result{}, &tools.UpstreamError{
				Reason: tools.Refused, Err: errors.New(message), Data: json.RawMessage(`{"who":"ann"}`),
			}
		}
		_, err := w.call(e, "put", fmt.Sprintf(`{"x":%q}`, message))
		got, ok := errors.AsType[*broker.Error](err)
		if !ok || got.Message != want || string(got.Structured) != `{"who":"<NAME_1>"}` || got.Code != errcode.ToolFailed {
			t.Errorf("%q: the call = %#v, want the message %q and the data", message, err, want)
		}
	}
}

func TestBudgets(t *testing.T) {
	for _, test := range []struct {
		name   string
		budget broker.Budget
		reply  tools.Result
		calls  int // how many are made before one is rejected
	}{
		{"calls", broker.Budget{Calls: 3}, text("ok"), 3},
		{"bytes", broker.Budget{Bytes: 100}, text("ok"), 4}, // 19 for the arguments and 4 for the result
		{"files", broker.Budget{Bytes: 1 << 20}, text(strings.Repeat("x", 400<<10)), 3},
		{"images", broker.Budget{Bytes: 1 << 20}, tools.Result{
			Content: []tools.Content{{Type: "image", MediaType: "image/png", Data: make([]byte, 400<<10)}},
		}, 3},
	} {
		w := newWorld(t)
		w.cfg.Budget = test.budget
		w.reply["put"] = func(tools.Request) (tools.Result, error) { return test.reply, nil }
		e := w.open()
		for i := range 10 {
			_, err := w.call(e, "put", fmt.Sprintf(`{"x":"%d-345678901"}`, i))
			if (err == nil) != (i < test.calls) || (err != nil && code(err) != errcode.OverBudget) {
				t.Errorf("%s: call %d = %v, want over_budget from call %d on", test.name, i+1, err, test.calls+1)
			}
		}
		if len(e.Calls()) != test.calls+1 || len(w.ended) != test.calls+1 {
			t.Errorf("%s: %d calls listed, %d audited, want %d made and the first rejected one", test.name,
				len(e.Calls()), len(w.ended), test.calls)
		}
	}
}

// The errors of tools count against the budget, too.
func TestBudgetOfErrors(t *testing.T) {
	w := newWorld(t)
	w.cfg.Budget.Bytes = 300 << 10
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		value := object(`"` + strings.Repeat("x", 100<<10) + `"`)
		return tools.Result{IsError: true, Structured: value, Content: text(strings.Repeat("y", 100<<10)).Content}, nil
	}
	e := w.open()
	for i, want := range []string{errcode.ToolFailed, errcode.ToolFailed, errcode.OverBudget} {
		if _, err := w.call(e, "put", fmt.Sprintf(`{"i":%d}`, i)); code(err) != want {
			t.Errorf("call %d = %s, want %s", i+1, code(err), want)
		}
	}
}

// A call that the tenant's rate refuses is over budget, but the budget of the execution is not exhausted: later calls
// are audited.
func TestAuditAfterRate(t *testing.T) {
	w := newWorld(t)
	refuse := errors.New("not now")
	w.cfg.Hooks.Rate = func(context.Context, []string) error { return refuse }
	e := w.open()
	if _, err := w.call(e, "put", `{"i":1}`); code(err) != errcode.OverBudget {
		t.Errorf("call that the rate refuses = %v, want over_budget", err)
	}
	refuse = nil
	if _, err := w.call(e, "put", `{"i":2}`); err != nil {
		t.Errorf("next call = %v, want nil", err)
	}
	if calls := e.Calls(); len(calls) != 2 || !calls[1].OK || len(w.begun) != 2 || len(w.ended) != 2 {
		t.Errorf("%+v, %d begun, %d ended in the audit; want both calls in each", calls, len(w.begun), len(w.ended))
	}
}

// The files of two tools have different names, even if what people can read in them is the same.
func TestFilesOfSimilarTools(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("long_", 8)
	for _, name := range []string{"get-x", "get_x", long + "a", long + "b"} {
		w.cfg.Catalogue.Tools = append(w.cfg.Catalogue.Tools, tools.Tool{
			Server: "s", Name: name, State: tools.Approved, Annotations: tools.Annotations{ReadOnly: true},
			InputSchema: object(`{"type":"object"}`),
		})
	}
	w.cfg.Catalogue = tools.NewListing(w.cfg.Catalogue.Tools)
	e := w.open()
	for _, name := range []string{"get-x", "get_x", long + "a", long + "b"} {
		large := text(name + strings.Repeat("x", 300<<10))
		w.reply[name] = func(tools.Request) (tools.Result, error) { return large, nil }
		if _, err := w.call(e, name, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.files) != 4 {
		t.Errorf("%d files, want 4", len(w.files))
	}
}

func TestTimeBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Budget = broker.Budget{PerCall: 3 * time.Second, Total: 10 * time.Second}
		w.reply["put"] = func(tools.Request) (tools.Result, error) {
			<-time.After(2 * time.Second)
			return text("ok"), nil
		}
		e := w.open()
		for i := range 7 {
			_, err := w.call(e, "put", `{}`)
			if (err == nil) != (i < 6) || (err != nil && code(err) != errcode.OverBudget) {
				t.Errorf("call %d = %v, want over_budget from call 7 on", i+1, err)
			}
		}
		w.blockReply = make(chan struct{}) // never responds
		if _, err := w.call(w.open(), "put", `{"slow":1}`); code(err) != errcode.Timeout ||
			!strings.Contains(err.Error(), "3s") {
			t.Errorf("put, which takes too long = %v, want a timeout after 3s", err)
		}
	})
}

func TestConcurrencyBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Budget.Concurrent = 2
		w.blockReply = make(chan struct{})
		e := w.open()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if _, err := w.call(e, "get", fmt.Sprintf(`{"location":"%d"}`, i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if len(w.made) != 2 {
			t.Errorf("%d concurrent calls, want 2", len(w.made))
		}
		close(w.blockReply)
		wg.Wait()
		if len(w.made) != 5 {
			t.Errorf("%d calls, want 5", len(w.made))
		}
	})
}

func TestExcerptsOfMutatingCalls(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 2000)
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{Content: []tools.Content{{Type: "text", Text: long}}}, nil
	}
	e := w.open()
	for _, tool := range []string{"get", "put"} {
		if _, err := w.call(e, tool, `{"location":"Oslo"}`); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	get, put := e.Calls()[0], e.Calls()[1]
	if get.ArgsExcerpt+get.ResultExcerpt != "" || put.ArgsExcerpt != `{"location":"Oslo"}` ||
		len(put.ResultExcerpt) > 510 || !strings.HasPrefix(put.ResultExcerpt, `"xxx`) {
		t.Errorf("calls = %+v, want excerpts of the arguments and result of put", e.Calls())
	}
	for _, record := range append(w.begun, w.ended...) {
		if record.ArgsExcerpt+record.ResultExcerpt != "" {
			t.Errorf("audit record %+v has arguments or a result, want neither", record)
		}
	}
}

// callFor makes a call with a time limit, like a program's.
func (w *world) callFor(e *broker.Execution, limit time.Duration, tool, args string) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	_, err := e.Call(ctx, broker.Call{Server: "s", Tool: tool, Args: object(args)})
	return err
}

// Calls wait while the queue is unreachable, and succeed when it is back. If the program's time ends first, the
// run is lost.
func TestCallsWaitForTheQueue(t *testing.T) {
	for name, fail := range map[string]func(*world, error){
		"begin":   func(w *world, err error) { w.failAudit = err },
		"decided": func(w *world, err error) { w.failDecided = err },
		"intent":  func(w *world, err error) { w.failIntent = err },
		"record":  func(w *world, err error) { w.failRecord = err },
		"end":     func(w *world, err error) { w.failEnd = err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Policy.Tools = map[string]broker.Decision{"s/put": broker.RequireApproval}
				w.cfg.Hooks.Approve = func(context.Context, broker.ApprovalRequest) (broker.Approval, error) {
					return broker.Approval{State: broker.Granted, By: "alice"}, nil
				}
				fail(w, errors.New("no leader"))
				e := w.open()
				began := time.Now()
				time.AfterFunc(20*time.Second, func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					fail(w, nil)
				})
				err := w.callFor(e, time.Minute, "put", `{}`)
				if waited := time.Since(began); err != nil || waited < 20*time.Second || waited > 25*time.Second {
					t.Errorf("put = %v after %s, want success after 20 s", err, waited)
				}
				if err := e.Close(t.Context()); err != nil || len(w.made) != 1 {
					t.Errorf("Close() = %v, calls %v, want one call", err, w.made)
				}

				fail(w, errors.New("no leader"))
				e = w.open()
				if err := w.callFor(e, 30*time.Second, "put", `{"x":1}`); err == nil {
					t.Error("put without the queue = nil, want an error")
				}
				if err := e.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "no leader") {
					t.Errorf("Close() = %v, want the reason why the run is lost", err)
				}
				want := map[string]int{"begin": 1, "decided": 1, "intent": 1, "record": 2, "end": 2}[name]
				if len(w.made) != want {
					t.Errorf("calls %v, want %d", w.made, want)
				}
			})
		})
	}
}

// TestOverlappingRuns lets a run that has lost its lease make the same call as the next run, which had read the journal
// before that. Only one of the calls is made, unless it may be repeated.
func TestOverlappingRuns(t *testing.T) {
	for tool, made := range map[string]int{"put": 1, "set": 2} { // set is idempotent
		t.Run(tool, func(t *testing.T) {
			w := newWorld(t)
			first := w.open()
			w.cfg.Task.Run = 2
			second := w.open()
			if err := w.callFor(first, time.Minute, tool, `{}`); err != nil {
				t.Errorf("%s of the first run = %v, want nil", tool, err)
			}
			err := w.callFor(second, time.Minute, tool, `{}`)
			e, ok := errors.AsType[*broker.Error](err)
			if (err == nil) != (made == 2) || ok && e.Code != errcode.InDoubt {
				t.Errorf("%s of the second run = %v, want it in doubt unless it may be repeated", tool, err)
			}
			if len(w.made) != made {
				t.Errorf("calls %v, want %d", w.made, made)
			}
			for _, e := range []*broker.Execution{first, second} {
				if err := e.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}
			}
		})
	}
}

// hanging is a Journal and an Audit whose writes do not return before their context ends.
type hanging struct {
	broker.Journal
	broker.Audit
}

func (hanging) Intent(ctx context.Context, _ broker.JournalEntry) (uint64, error) {
	return 0, hang(ctx)
}
func (hanging) Record(ctx context.Context, _ broker.JournalEntry) error { return hang(ctx) }
func (hanging) Begin(ctx context.Context, _ broker.AuditRecord) error   { return hang(ctx) }
func (hanging) End(ctx context.Context, _ broker.AuditRecord) error     { return hang(ctx) }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestExitEndsWrites checks that a process that exits does not wait for writes to the journal and the audit, and that
// the run is then lost.
func TestExitEndsWrites(t *testing.T) {
	for name, hangs := range map[string]func(*broker.Config){
		"journal": func(c *broker.Config) { c.Journal = hanging{Journal: c.Journal} },
		"audit":   func(c *broker.Config) { c.Audit = hanging{Audit: c.Audit} },
	} {
		for _, tool := range []string{"put", "get"} { // one that changes something, and one that only reads
			t.Run(name+" of "+tool, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					hangs(&w.cfg)
					exit, exits := context.WithCancel(t.Context())
					e := w.openUntil(exit)
					time.AfterFunc(time.Second, exits)
					began := time.Now()
					_ = w.callFor(e, time.Minute, tool, `{"location":"x"}`) // may succeed, because records are queued
					err := e.Close(t.Context())
					if waited := time.Since(began); waited != time.Second {
						t.Errorf("Call and Close took %v, want 1s", waited)
					}
					if lost := name == "audit" || tool == "put"; (err != nil) != lost {
						t.Errorf("Close() = %v, want an error: %v", err, lost)
					}
				})
			})
		}
	}
}

func TestCancelledCallsAreAudited(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.reply["get"] = func(tools.Request) (tools.Result, error) { cancel(); return tools.Result{}, ctx.Err() }
	e := w.open()
	if _, err := e.Call(ctx,
		broker.Call{Server: "s", Tool: "get", Args: object(`{"location":"x"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("get, which is cancelled = %v, want context.Canceled", err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(w.begun) != 1 || len(w.ended) != 1 || w.ended[0].OK {
		t.Errorf("the audit has %d beginnings, and the ends %+v, want one of each, not OK", len(w.begun), w.ended)
	}
}

func TestReadOnlyCallsAreRecordedInBackground(t *testing.T) {
	w := newWorld(t)
	w.blockRecord = make(chan struct{})
	e := w.open()
	if _, err := w.call(e, "get", `{"location":"x"}`); err != nil {
		t.Fatal(err)
	}
	if len(w.journal) != 0 {
		t.Fatal("the journal has an entry before blockRecord is closed, want none")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(cancelled); err == nil {
		t.Error("Close before the record = nil, want an error")
	}
	close(w.blockRecord)
	if err := e.Close(t.Context()); err != nil || len(w.journal) != 1 {
		t.Errorf("Close = %v, journal %v; want nil and one entry", err, w.journal)
	}
}

func TestFailingJournal(t *testing.T) {
	w := newWorld(t)
	w.failLookup, w.cfg.Task.Run = errors.New("journal down"), 2
	if _, err := broker.New(t.Context(), w.cfg); err == nil {
		t.Error("New without the journal of an earlier run = nil, want an error")
	}
}

// TestManyBlocks checks that the structured content is decoded once and not for each block: if it were, the test would
// take tens of minutes. It also checks the limit of blocks.
func TestManyBlocks(t *testing.T) {
	blocks := func(n int) []tools.Content {
		return slices.Repeat([]tools.Content{{Type: "text", Text: "1"}}, n)
	}
	call := func(res tools.Result) (broker.Result, *broker.Error) {
		w := newWorld(t)
		w.cfg.SpillAt = 100 << 20
		w.reply["put"] = func(tools.Request) (tools.Result, error) { return res, nil }
		r, err := w.open().Call(t.Context(), broker.Call{Server: "s", Tool: "put", Args: object(`{}`)})
		e, _ := errors.AsType[*broker.Error](err)
		if err != nil && e == nil {
			t.Fatal(err)
		}
		return r, e
	}
	large := object(`{"a":[` + strings.Repeat(`{"b":1},`, 100_000) + `0]}`)
	for _, known := range []string{"1", string(large)} { // a block that repeats all does not count
		list := blocks(10_000)
		list[5000].Text = known
		r, e := call(tools.Result{Structured: large, Content: list})
		want := 10_000
		if known != "1" {
			want--
		}
		if got := strings.Count(string(r.Content), `"1"`); e != nil || got != want {
			t.Errorf("%d blocks, error %v, want %d", got, e, want)
		}
	}
	images := func(n int) []tools.Content {
		return slices.Repeat([]tools.Content{{Type: "image", Data: []byte("x"), MediaType: "image/png"}}, n)
	}
	for _, structured := range []json.RawMessage{nil, object(`{}`)} {
		const want = "the result has 10001 blocks of data; the limit is 10000: " +
			"have the tool return less, or larger blocks"
		if _, e := call(tools.Result{Structured: structured, Content: images(10_001)}); e == nil ||
			e.Code != errcode.ResultTooLarge || e.Message != want || !e.Sent {
			t.Errorf("10,001 images: %+v, want %s", e, want)
		}
		if _, e := call(tools.Result{Structured: structured, Content: blocks(20_000)}); e != nil {
			t.Errorf("20,000 texts: %+v, want nil", e)
		}
	}
}

// The conversion of a result ends with the call's context.
func TestConversionIsCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	spilled := 0
	w.cfg.Hooks.Spill = func(context.Context, string, string, []byte) (string, error) {
		spilled++
		cancel()
		return "artifacts/x", nil
	}
	png := tools.Content{Type: "image", MediaType: "image/png", Data: []byte("png")}
	w.reply["put"] = func(tools.Request) (tools.Result, error) {
		return tools.Result{Structured: object(`{}`), Content: []tools.Content{png, png, png}}, nil
	}
	_, err := w.open().Call(ctx, broker.Call{Server: "s", Tool: "put", Args: object(`{}`)})
	if !errors.Is(err, context.Canceled) || spilled != 1 {
		t.Errorf("Call() = %v after %d files, want a cancelled call after one", err, spilled)
	}
}
