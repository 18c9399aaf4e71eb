package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/codefleet/codefleet/internal/egress"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/schemas"
)

// execution is what came of running the program in its box once.
type execution struct {
	verdict executor.Verdict
	failure *schemas.Error       // why the program did not succeed
	calls   []broker.AuditRecord // its tool calls
	egress  []egress.Attempt     // the connections that it tried to make
	guard   *guard               // the guardrails, with their findings
	ms      float64
}

// execute runs the program, with its tools and its network.
func (p *Pipeline) execute(ctx context.Context, s steps, a attempt) (e execution, err error) {
	var deadline time.Time // the program's; set before the program runs; only its calls read it
	untilExit, release := jobs.UntilExit(ctx)
	defer release()
	calls, err := p.openCalls(ctx, untilExit, s, a.checkout.tree, func() time.Time { return deadline })
	if err != nil {
		return e, err
	}
	g := p.guard(s.task)
	var hooks executor.Hooks
	if calls != nil {
		hooks.Call = p.callHook(s, calls, g)
		hooks.Called = func(c executor.LocalCall) { calls.AddLocal(c.Server, c.Tool, c.MS, c.OK) }
	}
	var proxy *egress.Proxy
	if len(s.network) > 0 {
		o := p.Limits.Network
		o.Allow = s.network
		proxy = egress.New(o)
		hooks.Network = proxy.Serve
	}
	deadline = time.Now().Add(s.task.limits.OrDefaults().Timeout)
	e, err = p.runProgram(ctx, s, a, g, hooks)
	e.guard = g
	if proxy != nil {
		proxy.Close()
		e.egress = proxy.Attempts()
	}
	if err = errors.Join(err, closeCalls(ctx, calls)); err != nil {
		return e, err
	}
	if calls != nil {
		e.calls = calls.Calls()
	}
	e.failure = p.explainFailure(s, a.box, e.verdict.Error)
	return e, nil
}

// runProgram runs the program in the box and emits its output.
func (p *Pipeline) runProgram(
	ctx context.Context, s steps, a attempt, g *guard, hooks executor.Hooks,
) (e execution, err error) {
	tree := a.checkout.tree
	document, err := p.stateDocument(s.task, s.draft.code, tree)
	if err != nil {
		return e, err
	}
	defer measure(&e.ms)()
	ctx, span := p.Tracer.Start(ctx, "sandbox.run")
	defer span.End()
	t := s.task
	t.job.Emit(ctx, schemas.Progress{Stage: "run"})
	out := newOutput(t.limits.OrDefaults().OutputBytes, func(stream, text string) {
		if !p.holdsOutput(g) { // otherwise the review stage emits it
			t.job.Emit(ctx, schemas.Progress{Stream: stream, Text: text})
		}
	})
	defer out.flush()
	hooks.Output = out.write
	running, stop := cancellable(ctx)
	defer stop()
	var pluginErr error // set by the hooks if a plugin could not validate the program
	hooks = p.checks(running, s, g, hooks, &pluginErr)
	e.verdict, err = a.box.Run(running, executor.Program{
		TaskID: t.id(), Code: s.draft.code, Inputs: t.job.Task.Inputs, Env: t.job.Task.Env, Limits: t.limits,
		Catalogue: s.tools.dir, State: document, Session: a.checkout.session,
	}, hooks)
	if err = errors.Join(err, pluginErr); err != nil {
		return e, fmt.Errorf("run the program: %w", withCause(ctx, err))
	}
	span.SetAttributes(attribute.String("verdict", e.verdict.Status))
	if document != nil && e.verdict.Status == executor.Succeeded && e.verdict.StateSaved {
		err = convertSaved(document, tree)
	}
	return e, err
}
