package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// toolResults is the workspace's directory for files that tools return: images, audio and large results.
const toolResults = "tool-results"

// openCalls returns the broker for one execution's tool calls, or nil if the fleet has no tools. exit ends when the
// process is about to exit. deadline returns the program's deadline, which is known once the program runs.
func (p *Pipeline) openCalls(
	ctx, exit context.Context, s steps, tree *state.Tree, deadline func() time.Time,
) (*broker.Execution, error) {
	if s.tools.index == nil {
		return nil, nil
	}
	r := s.task.job.Record
	hooks := p.privacyHooks(ctx, s)
	hooks.Spill, hooks.Approve = spill(tree), p.approver(s.task, deadline)
	hooks.Rate = s.task.job.AwaitToolRate
	return broker.New(ctx, broker.Config{
		Task: broker.Task{
			ID: r.TaskID, Tenant: r.Tenant, Session: r.Session, Allow: s.tools.allow,
			Run:       max(1, r.Run) + len(s.attempts), // above 1 if there may be a journal to replay
			Corrected: s.draft.repairs > 0,
		},
		Catalogue: s.tools.index.Listing, Schemas: p.schemas,
		Upstream: p.Tools.Upstream, Journal: p.Tools.Journal, Audit: p.Tools.Audit,
		Policy: p.Tools.Policy, Budget: p.Tools.Budget,
		Hooks: hooks, Log: p.Log, Tracer: p.Tracer, Exit: exit,
	})
}

// approver returns a function that requests approvals through the task's record. It is nil if the fleet does
// not wait for approvals.
func (p *Pipeline) approver(t task, deadline func() time.Time) broker.Approver {
	if p.Tools.Approval <= 0 {
		return nil
	}
	return func(ctx context.Context, q broker.ApprovalRequest) (broker.Approval, error) {
		ends := []time.Time{time.Now().Add(p.Tools.Approval), deadline().Add(-approvalMargin)}
		if end, ok := ctx.Deadline(); ok {
			ends = append(ends, end.Add(-approvalMargin))
		}
		expires := slices.MinFunc(ends, time.Time.Compare)
		a, err := t.job.RequestApproval(ctx, schemas.Approval{
			Call: q.Call, Server: q.Server, Tool: q.Tool, Signature: q.Signature, Effects: q.Effects,
			ExpiresAt: expires.UTC(),
			Arguments: broker.Preview(t.tokenisedJSON(ctx, q.Args)), ArgsHash: q.ArgsHash, ArgsBytes: len(q.Args),
		})
		return broker.Approval{State: broker.ApprovalState(a.State), By: a.By, Reason: a.Reason}, err
	}
}

// approvalMargin is the time between the end of an approval and the deadlines of the call and the program. It lets the
// program learn that the approval has expired.
const approvalMargin = 500 * time.Millisecond

// spill returns a function that writes large parts of tools' results into the workspace, and returns their paths in
// the box.
func spill(tree *state.Tree) broker.Spill {
	var mu sync.Mutex
	return func(_ context.Context, name, _ string, data []byte) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		path := toolResults + "/" + name
		return executor.DefaultGuest().Workspace + "/" + path, tree.WriteFile(path, data, 0o644)
	}
}

// callHook returns the executor's hook for tool calls.
func (p *Pipeline) callHook(
	s steps, calls *broker.Execution, g *guard,
) func(context.Context, executor.Call) (executor.CallResult, error) {
	return func(ctx context.Context, c executor.Call) (executor.CallResult, error) {
		call := broker.Call{
			Server: c.Server, Tool: c.Tool, Hash: c.Hash, Args: c.Args, Progress: s.task.progressEmitter(ctx, c),
		}
		call = g.reviewCall(ctx, p.reviewCall(ctx, s.task, call), s.tools.names(c.Server, c.Tool))
		r, err := calls.Call(ctx, call)
		if e, ok := errors.AsType[*broker.Error](err); ok {
			err = &executor.CallError{Code: e.Code, Err: e, Structured: e.Structured, Content: e.Content}
		}
		return executor.CallResult{Value: r.Value, Content: r.Content}, err
	}
}

// progressInterval is the shortest time between two progress events of one call.
const progressInterval = 500 * time.Millisecond

// progressEmitter returns a function that emits the progress of a long call, as its server reports it.
func (t task) progressEmitter(ctx context.Context, c executor.Call) func(string, float64, float64) {
	var last time.Time
	return func(message string, done, total float64) {
		if time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		t.job.Emit(ctx, schemas.Progress{Stage: "tool", Text: t.progressText(c, message, done, total)})
	}
}

// progressText describes the progress of a call. With the privacy mode broker, the server's message has privacy tokens
// in place of values, as the call's result does.
func (t task) progressText(c executor.Call, message string, done, total float64) string {
	text := fmt.Sprintf("%s/%s: %s", c.Server, c.Tool, plain(done))
	if total > 0 {
		text += " of " + plain(total)
	}
	if t.tokens.Broker() {
		message = t.tokens.ReplaceAtOnce(message)
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

// plain returns a number without an exponent, unless it would be very long.
func plain(f float64) string {
	if math.Abs(f) >= 1e21 {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// closeCalls waits until the calls are in the journal, where the next run finds them, and are audited.
func closeCalls(ctx context.Context, calls *broker.Execution) error {
	if calls == nil {
		return nil
	}
	ctx, stop := cleanup(ctx)
	defer stop()
	return calls.Close(ctx)
}

// busyMS returns for how long at least one call was running, in milliseconds.
func busyMS(calls []broker.AuditRecord) (ms float64) {
	calls = slices.SortedFunc(slices.Values(calls), func(a, b broker.AuditRecord) int {
		return a.Started.Compare(b.Started)
	})
	var until time.Time
	for _, c := range calls {
		end := c.Started.Add(time.Duration(c.MS * float64(time.Millisecond)))
		if end.After(until) {
			from := slices.MaxFunc([]time.Time{c.Started, until}, time.Time.Compare)
			ms += float64(end.Sub(from).Microseconds()) / 1000
			until = end
		}
	}
	return ms
}
