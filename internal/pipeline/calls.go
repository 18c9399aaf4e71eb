package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// toolResults is the directory of the workspace in which a tool's images, sounds and large answers
// appear.
const toolResults = "tool-results"

// calls opens the way of one run's tool calls; nil when the fleet has no tools.
func (p *Pipeline) calls(ctx context.Context, t *task, tree *state.Tree) (*broker.Execution, error) {
	if t.tools == nil {
		return nil, nil
	}
	r := t.job.Record
	return broker.New(ctx, broker.Config{
		Task: broker.Task{
			ID: r.TaskID, Tenant: r.Tenant, Session: r.Session, Allow: t.allow,
			Run: max(1, r.Run) + t.runs, RepeatInDoubt: t.result.Repairs > 0, // mends: no call in doubt is mended
		},
		Catalogue: t.tools.Snapshot, Upstream: p.Tools.Upstream, Journal: p.Tools.Journal, Audit: p.Tools.Audit,
		Policy: p.Tools.Policy, Budget: p.Tools.Budget, Schemas: p.schemas,
		Hooks: broker.Hooks{Spill: spill(tree), Approve: p.approver(t)}, Log: p.Log, Tracer: p.Trace,
	})
}

// approver puts calls into the task's record, where whoever may answer finds them; nil when nobody is
// to be asked.
func (p *Pipeline) approver(t *task) broker.Approver {
	if p.Tools.Approval <= 0 {
		return nil
	}
	return func(ctx context.Context, q broker.ApprovalRequest) (broker.Approval, error) {
		until := earliest(time.Now().Add(p.Tools.Approval), t.deadline.Add(-answerSlack))
		if end, ok := ctx.Deadline(); ok {
			until = earliest(until, end.Add(-answerSlack))
		}
		a, err := t.job.RequestApproval(ctx, schemas.Approval{
			Call: q.Call, Server: q.Server, Tool: q.Tool, Signature: q.Signature, ExpiresAt: until.UTC(),
			Arguments: broker.Preview(q.Args), ArgsHash: q.ArgsHash, ArgsBytes: len(q.Args),
		})
		return broker.Approval{State: broker.ApprovalState(a.State), By: a.By, Reason: a.Reason}, err
	}
}

// answerSlack is left of the time of a call, and of the program, once nobody answers any more: for the
// program to hear of it.
const answerSlack = 500 * time.Millisecond

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// spill writes parts of answers into the workspace.
func spill(tree *state.Tree) broker.Spill {
	var mu sync.Mutex
	return func(_ context.Context, name, _ string, data []byte) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		path := toolResults + "/" + name
		return executor.DefaultGuest().Workspace + "/" + path, tree.WriteFile(path, data, 0o644)
	}
}

// callHook makes a tool call of a program.
type callHook func(context.Context, executor.Call) (json.RawMessage, error)

// hook is the executor's side of the calls.
func (p *Pipeline) hook(t *task, calls *broker.Execution) callHook {
	if calls == nil {
		return nil
	}
	return func(ctx context.Context, c executor.Call) (json.RawMessage, error) {
		call := broker.Call{Server: c.Server, Tool: c.Tool, Hash: c.Hash, Args: c.Args, Progress: t.progress(ctx, c)}
		r, err := calls.Call(ctx, p.plugged(ctx, t, call))
		if e, ok := errors.AsType[*broker.Error](err); ok {
			err = &executor.CallError{Code: e.Code, Err: e}
		}
		return r.Value, err
	}
}

// local lists the calls that a program says it made in its box.
func local(calls *broker.Execution) func(executor.LocalCall) {
	if calls == nil {
		return nil
	}
	return func(c executor.LocalCall) { calls.AddLocal(c.Server, c.Tool, c.MS, c.OK) }
}

// progressEvery is the least time between two lines of progress of one call: a server may tell as
// often as it likes.
const progressEvery = 500 * time.Millisecond

// progress shows how far a long call is, as the server tells it.
func (t *task) progress(ctx context.Context, c executor.Call) func(string, float64, float64) {
	var last time.Time
	return func(message string, done, total float64) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		text := fmt.Sprintf("%s/%s: %g", c.Server, c.Tool, done)
		if total > 0 {
			text += fmt.Sprintf(" of %g", total)
		}
		if message != "" {
			text += ": " + message
		}
		t.job.Emit(ctx, schemas.Progress{Stage: "tool", Text: text})
	}
}

// closeCalls waits until the journal has what it was given, so that another run finds it, and until
// the calls are on record.
func closeCalls(ctx context.Context, calls *broker.Execution) error {
	if calls == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	return calls.Close(ctx)
}

// called fills in which calls the run made.
func (t *task) called(calls *broker.Execution) {
	if calls == nil {
		return
	}
	entries := calls.Calls()
	t.entries = entries
	t.timing.Tools = busy(entries)
	t.result.Tools.Calls = nil
	for _, e := range entries {
		t.result.Tools.Calls = append(t.result.Tools.Calls, schemas.ToolCall{Server: e.Server, Tool: e.Tool, MS: e.MS, OK: e.OK, Replayed: e.Replayed})
	}
}

// busy is the time in which at least one call was under way, in milliseconds.
func busy(entries []broker.AuditRecord) (ms float64) {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b broker.AuditRecord) int { return a.Started.Compare(b.Started) })
	var until time.Time
	for _, e := range entries {
		end := e.Started.Add(time.Duration(e.MS * float64(time.Millisecond)))
		if from := later(e.Started, until); end.After(from) {
			ms += float64(end.Sub(from).Microseconds()) / 1000
		}
		until = later(until, end)
	}
	return ms
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
