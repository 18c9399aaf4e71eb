// Package pipeline runs one task, stage by stage: look for the commit of an earlier run, admit the network
// access, discover the tools, write the program, acquire a box, check out the workspace, execute, review the
// outcome, commit, and return the result. It is the only package that knows all of these parts; the parts do
// not know each other.
//
// Each stage takes values and returns a value, which steps keeps for the result. No stage changes a value
// that another has returned. Start reading at Pipeline.run.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/guardrails"
	"github.com/codefleet/codefleet/internal/guardrails/privacy"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pluginhost"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
)

// Parts are the dependencies and settings of a Pipeline. Pool and Store are required.
type Parts struct {
	Pool    *executor.Pool
	Store   *state.Store
	Queue   Queue
	Tools   Tools
	Codegen Codegen
	Plugins *pluginhost.Set                       // may be nil
	Guard   func(tenant string) *guardrails.Rules // returns the tenant's guardrails; may be nil
	Privacy *privacy.Filter                       // replaces personal data and secrets; may be nil
	Limits  Limits
	State   StateDocuments // the variable state of programs
	Log     *slog.Logger   // nil disables the log
	Tracer  trace.Tracer   // nil disables tracing
}

// Queue has what tasks need from the queue in addition to their own messages and records.
type Queue struct {
	Sessions Sessions // the logs of sessions; nil gives programs no log
	// StartWorkflow starts the run of a task whose data is a workflow; nil refuses such tasks.
	StartWorkflow func(context.Context, schemas.Record, schemas.Task) (schemas.WorkflowRun, error)
}

// Limits bound executions.
type Limits struct {
	Task    func(tenant string) executor.Limits // for tasks that set none; nil means the executor's defaults
	Network egress.Options                      // for executions with network access; Allow comes from the task
}

// Pipeline runs tasks. It is safe for concurrent use.
type Pipeline struct {
	Parts
	trees   trees
	schemas *broker.Schemas
}

// New returns a pipeline of the given parts.
func New(p Parts) *Pipeline {
	if p.Limits.Task == nil {
		p.Limits.Task = func(string) executor.Limits { return executor.Limits{} }
	}
	p.Log = cmp.Or(p.Log, slog.New(slog.DiscardHandler))
	p.Tracer = cmp.Or(p.Tracer, nooptrace.NewTracerProvider().Tracer(""))
	if p.Tools.Index == nil {
		p.Tools.Index = toolsearch.New(nil).Index
	}
	return &Pipeline{Parts: p, schemas: broker.NewSchemas()}
}

// Handle runs one task and returns its result; it is a jobs.Handler. An error means that the fleet could not
// run the task, and jobs decides whether to retry.
func (p *Pipeline) Handle(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
	return p.handle(ctx, j, func(context.Context) *state.Prefetched { return nil })
}

// Prepare starts to prefetch the workspace's HEAD. It returns a handler like Handle that uses the prefetched
// HEAD. The caller calls stop when the run has ended.
func (p *Pipeline) Prepare(ctx context.Context, rec schemas.Record) (handler jobs.Handler, stop func()) {
	head, stop := prefetch(ctx, p.Store, refOf(rec))
	handler = func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) { return p.handle(ctx, j, head) }
	return handler, stop
}

// prefetch starts to read the workspace's HEAD. head waits for the HEAD, and returns nil if the context that is passed
// to head ends first. stop ends the read.
func prefetch(
	ctx context.Context, store *state.Store, ref state.Ref,
) (head func(context.Context) *state.Prefetched, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var fetched *state.Prefetched
	go func() { // stop waits for this goroutine
		defer close(done)
		fetched = store.Prefetch(ctx, ref)
	}()
	head = func(ctx context.Context) *state.Prefetched {
		select {
		case <-done:
			return fetched
		case <-ctx.Done():
			return nil
		}
	}
	return head, func() { cancel(); <-done }
}

func (p *Pipeline) handle(
	ctx context.Context, j *jobs.Job, head func(context.Context) *state.Prefetched,
) (*schemas.Result, error) {
	res, err := p.run(ctx, newTask(j, p.Limits.Task(j.Record.Tenant), head))
	return res, explainMissingKey(err)
}

// maxConflicts is how often a task executes again because other commits changed the same paths. On the next
// conflict, both versions are committed.
const maxConflicts = 3

// run runs the stages of a task. A stage refuses the task by returning a *schemas.Error, and the task ends
// blocked.
func (p *Pipeline) run(ctx context.Context, t task) (*schemas.Result, error) {
	if res, err := p.appliedResult(ctx, t); res != nil || err != nil {
		return res, err
	}
	if len(t.job.Task.Workflow) > 0 {
		return p.startWorkflow(ctx, t)
	}
	if p.Privacy != nil {
		t.tokens = p.Privacy.Task(t.ref.Tenant, t.id())
	}
	s := steps{task: t}
	var err error
	if s.network, err = admit(t); err != nil {
		return s.end(err)
	}
	var release func()
	s.tools, release, err = p.discover(ctx, t)
	defer release()
	if err != nil {
		return s.end(err)
	}
	if s.draft, err = p.write(ctx, t, s.tools); err != nil {
		return s.end(err)
	}
	for conflicts := 0; ; {
		a, err := p.attempt(ctx, s, conflicts == maxConflicts)
		s.attempts, s.draft = append(s.attempts, a), a.draft
		if err != nil {
			return s.end(err)
		}
		if a.commit.conflict {
			conflicts++
			t.job.Emit(ctx, schemas.Progress{Stage: "conflict"})
			continue
		}
		var repaired bool
		if s.draft, repaired, err = p.repair(ctx, s); err != nil {
			return nil, err
		}
		if !repaired {
			res := s.result()
			p.recordTools(ctx, t, res)
			return res, nil
		}
	}
}

// attempt executes the program once, in a box, on the newest version of the workspace, and commits or reverts
// the changes. After an error the box is discarded. A program whose changes are committed even if it fails is repaired
// before the commit, because the changes are committed only if it could not be repaired. The task keeps its box during
// this call of the model.
func (p *Pipeline) attempt(ctx context.Context, s steps, keepBoth bool) (a attempt, err error) {
	a.draft = s.draft
	if a.box, err = p.acquire(ctx, s); err != nil {
		return a, err
	}
	defer func() {
		if err != nil {
			a.box.Discard()
		}
		a.box.Release()
	}()
	if a.checkout, err = p.checkout(ctx, s, a.box); err != nil {
		return a, err
	}
	if a.execution, err = p.execute(ctx, s, a); err != nil {
		return a, err
	}
	if a.outcome, err = p.review(ctx, s.task, a.execution); err != nil {
		return a, err
	}
	if s.commits(a) && s.repairable(a) {
		s.draft, a.repaired, err = p.repair(ctx, s.with(a))
		if a.draft = s.draft; err != nil {
			return a, err
		}
	}
	if !s.commits(a) { // without the changes, there is no checkpoint either
		a.outcome.Checkpoint = nil
	} else {
		a.commit, err = p.commit(ctx, s, a, keepBoth)
	}
	if err == nil && !a.commit.stored && !a.execution.verdict.Dirty { // Release discards a dirty box
		a.revertMS = p.revert(ctx, a)
	}
	if a.checkout.tree.Grown() {
		p.Log.InfoContext(ctx, "box discarded: a directory of the workspace has grown", "box", a.box.BoxID())
		a.box.Discard()
	}
	return a, err
}

// end returns the outcome of a task whose stage failed: a blocked result if the stage refused the task, or
// else the error.
func (s steps) end(err error) (*schemas.Result, error) {
	refusal, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		return nil, err
	}
	res := s.result()
	res.Status, res.Error = schemas.Blocked, refusal
	return res, nil
}
