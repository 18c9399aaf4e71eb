package pipeline

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/codegen/rules"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/schemas"
)

func TestBusy(t *testing.T) {
	start := time.Now()
	at := func(from, ms float64) broker.AuditRecord {
		return broker.AuditRecord{Started: start.Add(time.Duration(from * float64(time.Millisecond))), MS: ms}
	}
	for _, c := range []struct {
		entries []broker.AuditRecord
		want    float64
	}{
		{nil, 0},
		{[]broker.AuditRecord{at(0, 5)}, 5},
		{[]broker.AuditRecord{at(10, 5), at(0, 5)}, 10},                       // in sequence
		{[]broker.AuditRecord{at(0, 10), at(2, 3), at(5, 10), at(20, 1)}, 16}, // some concurrent
	} {
		if got := busyMS(c.entries); got != c.want {
			t.Errorf("busyMS(%v) = %v, want %v", c.entries, got, c.want)
		}
	}
}

func TestRepairable(t *testing.T) {
	mutating := tools.NewListing([]tools.Tool{
		{Server: "mail", Name: "send", State: tools.Approved},
		{Server: "mail", Name: "read", State: tools.Approved, Annotations: tools.Annotations{ReadOnly: true}},
	})
	call := func(tool string, code string) []broker.AuditRecord {
		return []broker.AuditRecord{{Server: "mail", Tool: tool, Code: code}}
	}
	for _, c := range []struct {
		name    string
		status  schemas.Status
		repairs int
		entries []broker.AuditRecord
		want    bool
	}{
		{"failed", schemas.Failed, 1, nil, true},
		{"no repair left", schemas.Failed, 0, nil, false},
		{"succeeded", schemas.Succeeded, 1, nil, false},
		{"timed out", schemas.Timeout, 1, nil, false},
		{"a mutating call was refused", schemas.Failed, 1, call("send", errcode.ToolFailed), true},
		{"a mutating call is in doubt", schemas.Failed, 1, call("send", errcode.Timeout), false},
		{"a read timed out", schemas.Failed, 1, call("read", errcode.Timeout), true},
		{"unknown tool", schemas.Failed, 1, call("sent", errcode.Unavailable), true},
	} {
		a := attempt{execution: execution{calls: c.entries}, outcome: plugin.Result{Status: c.status}}
		s := steps{tools: toolset{index: toolsearch.New(nil).Index(mutating)}, draft: draft{repairsLeft: c.repairs}}
		if got := s.repairable(a); got != c.want {
			t.Errorf("%s: repairable = %v, want %v", c.name, got, c.want)
		}
	}
}

// The model that repairs a program learns of every call that changed something, including earlier attempts.
func TestFailureListsMutatingCalls(t *testing.T) {
	list := tools.NewListing([]tools.Tool{
		{Server: "mail", Name: "send", State: tools.Approved},
		{Server: "mail", Name: "read", State: tools.Approved, Annotations: tools.Annotations{ReadOnly: true}},
	})
	call := func(tool, args string, ok bool) broker.AuditRecord {
		return broker.AuditRecord{Server: "mail", Tool: tool, ArgsExcerpt: args, ResultExcerpt: "7", OK: ok}
	}
	s := steps{tools: toolset{index: toolsearch.New(nil).Index(list)}, draft: draft{code: "x"}}
	for _, run := range []struct {
		entries []broker.AuditRecord
		want    []string
	}{
		{[]broker.AuditRecord{
			call("send", `{"to":"a"}`, true), call("read", "", true),
			call("send", `{"to":"b"}`, false),
		}, []string{`mail/send with {"to":"a"} returned 7`}},
		{
			[]broker.AuditRecord{call("send", `{"to":"c"}`, true)},
			[]string{`mail/send with {"to":"a"} returned 7`, `mail/send with {"to":"c"} returned 7`},
		},
		{
			[]broker.AuditRecord{call("send", `{"to":"a"}`, true)},
			[]string{`mail/send with {"to":"a"} returned 7`, `mail/send with {"to":"c"} returned 7`},
		},
		{nil, []string{`mail/send with {"to":"a"} returned 7`, `mail/send with {"to":"c"} returned 7`}},
	} {
		s = s.with(attempt{execution: execution{calls: run.entries}})
		if d := cmp.Diff(run.want, s.failure().Done); d != "" {
			t.Errorf("done (-want +got):\n%s", d)
		}
	}
}

func TestCodeRequired(t *testing.T) {
	list, err := tools.OpenCatalogue(filepath.Join("..", "..", "servers"), tools.Options{}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calculate := toolsearch.New(nil).Index(list).Definitions([]string{"calculator/calculate"})
	_, err = rules.Write(codegen.Request{Task: "Calculate 5 + 3 and email it to bob", Tools: calculate})
	required, ok := errors.AsType[*codegen.CodeRequiredError](err)
	if !ok {
		t.Fatalf("Write = %v, want a *CodeRequiredError", err)
	}
	got := describeCodeRequired(required, "model_timeout: no whole answer")
	message := `the model wrote no program, and the rules do not understand "email", "bob"`
	if got.Code != "code_required" || got.Message != message {
		t.Errorf("describeCodeRequired = %s: %s, want code_required: %s", got.Code, got.Message, message)
	}
	want := "understood:\n  calculate: Calculate 5 + 3\nnot understood:\n  email it to bob\n" +
		"tools:\n  from servers.calculator import calculate  # calculate(expression: str) -> float\nthe model:\n  " +
		"model_timeout: no whole answer"
	if d := cmp.Diff(want, got.Cause); d != "" {
		t.Errorf("cause (-want +got):\n%s", d)
	}
}

// TestBaseOfAResult checks that the result of each program, even of one that failed, names the generation on which the
// program ran.
func TestBaseOfAResult(t *testing.T) {
	for _, c := range []struct {
		commit commit
		want   schemas.WorkspaceChange
	}{
		{commit{}, schemas.WorkspaceChange{Base: 3, Generation: 3}},
		{
			commit{stored: true, change: schemas.WorkspaceChange{Base: 3, Generation: 5}},
			schemas.WorkspaceChange{Base: 3, Generation: 5},
		},
	} {
		s := steps{}.with(attempt{checkout: checkout{generation: 3}, commit: c.commit})
		if diff := cmp.Diff(c.want, s.result().Workspace); diff != "" {
			t.Errorf("result after %+v (-want +got):\n%s", c.commit, diff)
		}
	}
}
