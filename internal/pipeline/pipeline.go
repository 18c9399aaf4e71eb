// Package pipeline is the story of one task, in order: was it applied already, which tools are there
// (toolset.go), what is its program (program.go), a box, its workspace, the run with its tool calls
// (calls.go), another try of the model's (repair.go), the commit, the result; and where plugins have
// their say (plugins.go). It is the only package that knows all stages, and it does no I/O of its own:
// stages meet here as values and functions.
package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// reruns bounds how often a task runs again because others changed the same paths meanwhile. The
// last run commits both versions instead.
const reruns = 3

// settleTime bounds what is done for a task whose context has ended.
const settleTime = 10 * time.Second

// Stages are what a pipeline is made of. Pool, Store, Log and Trace are required.
type Stages struct {
	Pool       *executor.Pool
	Store      *state.Store
	Tools      Tools
	Index      func(*tools.Listing) *toolsearch.Index // required with Tools
	History    *toolsearch.History                    // nil: nothing is recorded
	Writer     *codegen.Writer                        // writes programs; nil: only the rules do
	Models     map[string]*codegen.Writer             // those that a task may name, by profile
	Repairs    int                                    // of a failed program of a model's, where the task does not say
	Ledger     Ledger                                 // nil: nobody counts what tenants spend
	TaskTokens int                                    // of models, for one task; 0: any
	Limits     func(tenant string) executor.Limits    // of a task that says nothing about them
	Log        *slog.Logger
	Trace      trace.Tracer
	Plugins    *pluginhost.Set // nil: none

	Network egress.Options // of runs that may use it; Allow is the task's
}

// Pipeline runs tasks. Its Handle may be called by several goroutines.
type Pipeline struct {
	Stages
	trees   trees
	schemas *broker.Schemas
}

// New returns a pipeline of the given stages.
func New(s Stages) *Pipeline {
	return &Pipeline{Stages: s, schemas: broker.NewSchemas()}
}

// Handle runs one task to its result: it is a jobs.Handler. An error means that the fleet could not
// run it; what had been done to the box's tree is undone, nothing is committed.
func (p *Pipeline) Handle(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
	return p.start(ctx, j, func() *state.Prefetched { return nil })
}

// Prepare begins to read the workspace's HEAD and returns Handle for the run that uses it.
func (p *Pipeline) Prepare(ctx context.Context, rec schemas.Record) (handler jobs.Handler, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var head *state.Prefetched
	go func() { // stop waits for it
		defer close(done)
		head = p.Store.Prefetch(ctx, state.Ref{Tenant: rec.Tenant, Workspace: rec.Workspace})
	}()
	wait := func() *state.Prefetched { <-done; return head }
	handler = func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) { return p.start(ctx, j, wait) }
	return handler, func() { cancel(); <-done }
}

func (p *Pipeline) start(ctx context.Context, j *jobs.Job, head func() *state.Prefetched) (*schemas.Result, error) {
	t := newTask(j, p.Limits(j.Record.Tenant), head)
	res, err := p.handle(ctx, t)
	return res, keyless(err)
}

func (p *Pipeline) handle(ctx context.Context, t *task) (*schemas.Result, error) {
	j := t.job
	if res, err := p.applied(ctx, t); res != nil || err != nil {
		return res, err
	}
	if refusal := t.asksFor(); refusal != nil {
		return t.ended(schemas.Blocked, refusal), nil
	}
	if err := p.discover(ctx, t); err != nil {
		return nil, err
	}
	refusal, err := p.program(ctx, t)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return t.ended(schemas.Blocked, refusal), nil
	}
	if j.Record.Code == "" && t.generatedBy != "caller" { // else it is there: from an earlier run, or in the task itself
		if err := j.SaveProgram(ctx, t.code, t.generatedBy); err != nil {
			return nil, err
		}
	}
	for conflicts := 0; ; t.runs++ {
		conflict, err := p.attempt(ctx, t, conflicts == reruns)
		if refusal, ok := errors.AsType[*schemas.Error](err); ok {
			return t.ended(schemas.Blocked, refusal), nil
		}
		if err != nil {
			return nil, err
		}
		if conflict {
			conflicts++
			j.Emit(ctx, schemas.Progress{Stage: "conflict"})
			continue
		}
		if again, err := p.repair(ctx, t); err != nil || !again {
			p.remember(ctx, t)
			return t.finish(), err
		}
	}
}

// applied finds out whether an earlier run committed and died before it could say so.
func (p *Pipeline) applied(ctx context.Context, t *task) (*schemas.Result, error) {
	if t.job.Record.Run <= 1 {
		return nil, nil
	}
	c, err := p.Store.Applied(ctx, t.ref, t.job.Record.TaskID, t.job.FirstClaim)
	if err != nil || c == nil {
		return nil, err
	}
	return p.committedBefore(ctx, t, *c)
}

// attempt acquires a box, checks the workspace out, runs the program and commits what it changed. It
// reports a conflict when the task has to run again on what others committed meanwhile.
func (p *Pipeline) attempt(ctx context.Context, t *task, keepBoth bool) (conflict bool, err error) {
	box, err := p.acquire(ctx, t)
	if err != nil {
		return false, p.roomless(ctx, nil, err)
	}
	defer box.Release()
	tree, err := p.checkout(ctx, t, box)
	if err != nil {
		return false, p.discard(box, p.roomless(ctx, box, err))
	}
	calls, err := p.calls(ctx, t, tree)
	if err != nil {
		return false, p.discard(box, err)
	}
	verdict, err := p.run(ctx, t, box, calls)
	err = errors.Join(err, closeCalls(ctx, calls))
	if err != nil {
		return false, p.discard(box, err)
	}
	t.take(verdict)
	p.hintModules(t)
	t.hintNetwork()
	t.called(calls)
	if err := p.review(ctx, t); err != nil {
		return false, p.discard(box, err)
	}
	if t.commits() {
		if err = box.CheckDisk(); err == nil {
			conflict, err = p.commit(ctx, t, tree, keepBoth)
		}
		if err != nil {
			return false, p.discard(box, p.roomless(ctx, box, err))
		}
	}
	if conflict || !t.commits() {
		p.revert(ctx, t, box, tree)
	}
	return conflict, nil
}

func (p *Pipeline) acquire(ctx context.Context, t *task) (*executor.AcquiredBox, error) {
	defer t.clock(&t.timing.SandboxWait)()
	ctx, span := p.Trace.Start(ctx, "sandbox.acquire")
	defer span.End()
	told := false
	box, err := p.Pool.Acquire(ctx, executor.Key{Tenant: t.ref.Tenant, Network: t.reach(), Environment: t.job.Record.Pool}, t.limits, func(w executor.Wait) {
		told = true
		what := schemas.WaitsForSandbox
		if w == executor.WaitMemory {
			what = schemas.WaitsForMemory
		}
		p.waitsFor(ctx, t, what)
	})
	if told {
		p.waitsFor(ctx, t, "")
	}
	if errors.Is(err, executor.ErrTooLarge) {
		return nil, &schemas.Error{Code: errcode.LimitTooLarge, Message: err.Error(), Hint: "ask for less memory"}
	}
	if _, ok := errors.AsType[*executor.UnavailableError](err); ok && ctx.Err() == nil { // whole it is the operator's
		p.Log.WarnContext(ctx, "task waits for sandboxes of its pool", "task", t.job.Record.TaskID, "pool", t.job.Record.Pool, "reason", executor.ReasonOf(err), "error", err)
		return nil, jobs.Unavailable(fmt.Errorf("the pool %s has no sandboxes on this worker (%s): codefleet pool says why", t.job.Record.Pool, executor.ReasonOf(err)))
	}
	if err != nil {
		return nil, fmt.Errorf("acquire a sandbox: %w", orCause(ctx, err))
	}
	info := box.Info()
	t.environment = box.Environment()
	if want := t.job.Task.MinTier; !drivers.TierSatisfies(info.Tier, want) {
		box.Release()
		return nil, &schemas.Error{
			Code: errcode.TierUnavailable, Message: "the task asks for " + want + ", and this worker has " + info.Tier,
			Hint: "send it to a pool whose workers have " + want + ", or leave min_tier out",
		}
	}
	t.result.Sandbox = schemas.Sandbox{
		Driver: info.Driver, EngineVersion: info.EngineVersion, Tier: info.Tier,
		Limits: info.Limits, Environment: info.Environment, Boot: box.Boot(),
	}
	return box, nil
}

// waitsFor tells people what keeps the task; empty: nothing any more. It goes on if they cannot be told.
func (p *Pipeline) waitsFor(ctx context.Context, t *task, what string) {
	if what != "" {
		t.job.Emit(ctx, schemas.Progress{Stage: "waiting", Text: "waits for " + what})
	}
	if err := t.job.SetWaitsFor(ctx, what); err != nil && ctx.Err() == nil {
		p.Log.WarnContext(ctx, "record does not say what the task waits for", "task", t.job.Record.TaskID, "error", err)
	}
}

func (p *Pipeline) checkout(ctx context.Context, t *task, box *executor.AcquiredBox) (*state.Tree, error) {
	defer t.clock(&t.timing.Checkout)()
	ctx, span := p.Trace.Start(ctx, "workspace.checkout")
	defer span.End()
	tree, err := p.trees.open(p.Store, box, t.ref)
	if err != nil {
		return nil, err
	}
	var seen *state.Prefetched
	if t.runs == 0 { // later runs are on what others have committed meanwhile
		seen = t.head()
	}
	version, err := p.Store.Checkout(ctx, tree, seen)
	if err != nil {
		return nil, fmt.Errorf("check out workspace %s: %w", t.ref, orCause(ctx, err))
	}
	t.result.Workspace.Generation = version.Generation
	if err := t.placeFiles(tree); err != nil {
		return nil, err
	}
	return tree, box.CheckDisk()
}

func (p *Pipeline) run(ctx context.Context, t *task, box *executor.AcquiredBox, calls *broker.Execution) (executor.Verdict, error) {
	defer t.clock(&t.timing.Run)()
	ctx, span := p.Trace.Start(ctx, "sandbox.run")
	defer span.End()
	t.job.Emit(ctx, schemas.Progress{Stage: "run"})
	out := newOutput(func(stream, text string) {
		if !p.Plugins.Results() { // else review shows what they leave of it
			t.job.Emit(ctx, schemas.Progress{Stream: stream, Text: text})
		}
	})
	defer out.flush()
	running, stop := cancellable(ctx)
	defer stop()
	var undecided error
	hooks := executor.Hooks{Output: out.write, Call: p.hook(t, calls), Called: local(calls)}
	defer p.openNetwork(t, &hooks)()
	hooks.Check = p.validator(running, t, &undecided)
	t.deadline = time.Now().Add(t.limits.OrDefaults().Timeout)
	verdict, err := box.Run(running, t.program(), hooks)
	if err = errors.Join(err, undecided); err != nil {
		return verdict, fmt.Errorf("run the program: %w", orCause(ctx, err))
	}
	span.SetAttributes(attribute.String("verdict", verdict.Status))
	return verdict, nil
}

func (p *Pipeline) commit(ctx context.Context, t *task, tree *state.Tree, keepBoth bool) (conflict bool, err error) {
	defer t.clock(&t.timing.Commit)()
	ctx, span := p.Trace.Start(ctx, "workspace.commit")
	defer span.End()
	ctx, stop := fenced(ctx)
	defer stop()
	stored, err := json.Marshal(t.finish())
	if err != nil {
		return false, err
	}
	c, err := p.Store.Commit(ctx, tree, state.CommitOptions{
		TaskID: t.job.Record.TaskID, Attempt: t.job.Record.Run, Result: stored,
		Since: t.job.FirstClaim, KeepBoth: keepBoth,
	})
	if _, ok := errors.AsType[*state.ConflictError](err); ok {
		return true, nil
	}
	if err != nil {
		return false, t.refusedCommit(err)
	}
	return false, p.committed(ctx, t, c)
}

// revert brings the box's tree back to what was checked out; a tree that cannot be is discarded.
func (p *Pipeline) revert(ctx context.Context, t *task, box *executor.AcquiredBox, tree *state.Tree) {
	defer t.clock(&t.timing.Commit)()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := p.Store.Revert(ctx, tree); err != nil {
		p.Log.WarnContext(ctx, "workspace not reverted, box discarded", "box", box.BoxID(), "error", err)
		box.Discard()
	}
}

func (p *Pipeline) discard(box *executor.AcquiredBox, err error) error {
	box.Discard()
	return err
}
