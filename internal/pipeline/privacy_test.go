package pipeline

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// privateWorker returns the hooks of a new worker for a task of the tenant acme, whose mode is broker.
func privateWorker(t *testing.T, id, description string) (*Pipeline, task, broker.Hooks) {
	t.Helper()
	f, err := privacy.NewFilter(privacy.Options{
		Key: []byte("key"), TTL: time.Hour,
		Fleet: privacy.Settings{Mode: privacy.Broker, Types: privacy.Types(), Restore: []string{"s/put", "s/get"}},
		Tenants: map[string]privacy.Settings{
			"acme": {Restore: []string{"s/put", "s/other"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pipeline{Parts: Parts{Privacy: f}}
	private := task{
		ref: state.Ref{Tenant: "acme"}, tokens: f.Task("acme", id),
		job: &jobs.Job{Task: schemas.Task{Description: description}},
	}
	s := steps{task: private, draft: draft{by: codegen.ByModel, request: codegen.Request{
		Task: "task", Tools: []codegen.Tool{{Server: "s", Name: "put", Doc: description}},
	}}}
	return p, private, p.privacyHooks(t.Context(), s)
}

// With the mode egress, a program gets values. The model that repairs it gets tokens, even in place of a value that
// only the name of its member shows to be private.
func TestRepairsHideCalls(t *testing.T) {
	f, err := privacy.NewFilter(privacy.Options{
		Key: []byte("key"), TTL: time.Hour, Fleet: privacy.Settings{Mode: privacy.Egress, Types: privacy.Types()},
	})
	if err != nil {
		t.Fatal(err)
	}
	const private = "correct-horse"
	listing := tools.NewListing([]tools.Tool{{Server: "crm", Name: "create_user", State: tools.Approved, Hash: "1"}})
	s := steps{
		task:  task{ref: state.Ref{Tenant: "acme"}, tokens: f.Task("acme", "1")},
		tools: toolset{index: toolsearch.New(nil).Index(listing)},
	}
	result := `{"password":"` + private + `","text":"` + strings.Repeat("x", 1000) + `"}`
	e, err := broker.New(t.Context(), broker.Config{
		Task:      broker.Task{ID: "1", Tenant: "acme", Run: 1, Allow: []string{"*"}},
		Catalogue: listing, Journal: &recorded{}, Audit: noAudit{}, Policy: broker.Policy{Destructive: broker.Allow},
		Hooks: (&Pipeline{Parts: Parts{Privacy: f}}).privacyHooks(t.Context(), s),
		Upstream: func(context.Context, tools.Request) (tools.Result, error) {
			return tools.Result{Structured: json.RawMessage(result)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	args := `{"phone":5550123,"password":"` + private + `"}`
	got, err := e.Call(t.Context(), broker.Call{Server: "crm", Tool: "create_user", Args: json.RawMessage(args)})
	if err != nil || string(got.Value) != result {
		t.Fatalf("call = %.200s, %v; want the values", got.Value, err)
	}
	failure := s.with(attempt{execution: execution{calls: e.Calls()}}).failure()
	if len(failure.Done) != 1 || !strings.Contains(failure.Done[0], "[SECRET_") {
		t.Fatalf("done = %q, want one call with a token", failure.Done)
	}
	if done := failure.Done[0]; strings.Contains(done, private) || strings.Contains(done, "5550123") {
		t.Errorf("done = %s, want no values", done)
	}
}

// With the mode broker, the progress that a tool reports has tokens in place of values, as its result does. With the
// mode egress, programs get values, and so do the tenant's events.
func TestProgressHasTokens(t *testing.T) {
	call := executor.Call{Server: "mail", Tool: "send"}
	text := func(mode privacy.Mode) string {
		f, err := privacy.NewFilter(privacy.Options{
			Key: []byte("key"), TTL: time.Hour, Fleet: privacy.Settings{Mode: mode, Types: privacy.Types()},
		})
		if err != nil {
			t.Fatal(err)
		}
		return task{tokens: f.Task("acme", "1")}.progressText(call, "sent to ada@example.org", 1234567.5, 1<<53)
	}
	if got := text(privacy.Broker); strings.Contains(got, "ada@") ||
		!strings.HasPrefix(got, "mail/send: 1234567.5 of 9007199254740992: sent to [EMAIL_") {
		t.Errorf("progress with broker = %q, want a token in place of the address", got)
	}
	for _, mode := range []privacy.Mode{privacy.Egress, privacy.Off} {
		if got, want := text(mode), "mail/send: 1234567.5 of 9007199254740992: sent to ada@example.org"; got != want {
			t.Errorf("progress with mode %d = %q, want %q", mode, got, want)
		}
	}
}

type recorded struct{ entries []broker.JournalEntry }

func (r *recorded) Lookup(context.Context, string, string) ([]broker.JournalEntry, error) {
	return r.entries, nil
}
func (r *recorded) Intent(context.Context, broker.JournalEntry) (uint64, error) { return 0, nil }
func (r *recorded) Record(_ context.Context, e broker.JournalEntry) error {
	r.entries = append(r.entries, e)
	return nil
}

type noAudit struct{}

func (noAudit) Begin(context.Context, broker.AuditRecord) error   { return nil }
func (noAudit) Decided(context.Context, broker.AuditRecord) error { return nil }
func (noAudit) End(context.Context, broker.AuditRecord) error     { return nil }

// A worker dies after a program got tokens. The next worker, which has only the journal and the fleet's key, replays
// the tokens and restores their values, for this task only and for permitted tools only. It also knows the tokens of
// the prompt, here of a tool's description, from which the model wrote the program.
func TestTokensOutliveAWorker(t *testing.T) {
	const description = "mail bob@example.org"
	journal := &recorded{}
	var sent []string
	no := false
	listing := tools.NewListing([]tools.Tool{
		{Server: "s", Name: "put", State: tools.Approved, Annotations: tools.Annotations{Destructive: &no}, Hash: "1"},
		{Server: "s", Name: "get", State: tools.Approved, Annotations: tools.Annotations{Destructive: &no}, Hash: "2"},
	})
	open := func(id string, run int, hooks broker.Hooks) *broker.Execution {
		e, err := broker.New(t.Context(), broker.Config{
			Task:      broker.Task{ID: id, Tenant: "acme", Run: run, Allow: []string{"*"}},
			Catalogue: listing, Journal: journal, Audit: noAudit{}, Hooks: hooks,
			Policy: broker.Policy{Destructive: broker.Allow},
			Upstream: func(_ context.Context, r tools.Request) (tools.Result, error) {
				sent = append(sent, string(r.Args))
				return tools.Result{Structured: json.RawMessage(`{"email":"ada@example.org"}`)}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	call := func(e *broker.Execution, tool, args string) string {
		t.Helper()
		r, err := e.Call(t.Context(), broker.Call{Server: "s", Tool: tool, Args: json.RawMessage(args)})
		if err != nil {
			t.Fatalf("%s(%s) = %v, want nil", tool, args, err)
		}
		return string(r.Value)
	}
	_, private, hooks := privateWorker(t, "1", description)
	prompt := private.promptPrivacy().Hide(t.Context(), description)[0]
	got := call(open("1", 1, hooks), "put", `{"a":1}`)
	if strings.Contains(got+prompt, "example.org") {
		t.Fatalf("result %s, prompt %s; want tokens", got, prompt)
	}

	_, _, hooks = privateWorker(t, "1", description)
	second := open("1", 2, hooks)
	if again := call(second, "put", `{"a":1}`); again != got {
		t.Errorf("replayed result = %s, want %s", again, got)
	}
	call(second, "put", `{"text":"`+prompt+`","who":`+got+`}`)
	if want := `{"text":"mail bob@example.org","who":{"email":"ada@example.org"}}`; sent[len(sent)-1] != want {
		t.Errorf("put got %s, want %s", sent[len(sent)-1], want)
	}
	call(second, "get", `{"who":`+got+`}`)
	if want := `{"who":` + got + `}`; sent[len(sent)-1] != want {
		t.Errorf("get got %s, want %s: the tenant's list does not permit it", sent[len(sent)-1], want)
	}

	journal = &recorded{}
	_, _, hooks = privateWorker(t, "2", "")
	call(open("2", 1, hooks), "put", `{"text":"`+prompt+`","who":`+got+`}`)
	if want := `{"text":"` + prompt + `","who":` + got + `}`; sent[len(sent)-1] != want {
		t.Errorf("put of another task got %s, want %s", sent[len(sent)-1], want)
	}
}
