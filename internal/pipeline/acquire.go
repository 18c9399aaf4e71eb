package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// box is an acquired box. The caller of acquire releases it.
type box struct {
	*executor.AcquiredBox
	sandbox schemas.Sandbox
	waitMS  float64
}

// acquire waits for a box for the task. It refuses a task that needs more memory than this worker may use, or a
// stronger sandbox than this worker has. Tasks of a tenant share a box only if they have the same task pool and may
// reach the same hosts; a box that last served the same workspace is preferred.
func (p *Pipeline) acquire(ctx context.Context, s steps) (b box, err error) {
	defer measure(&b.waitMS)()
	ctx, span := p.Tracer.Start(ctx, "sandbox.acquire")
	defer span.End()
	pool := s.task.job.Record.Pool
	waited := false
	b.AcquiredBox, err = p.Pool.Acquire(ctx,
		executor.Key{
			Tenant: s.task.ref.Tenant, Network: networkKey(s.network), Environment: pool,
			Workspace: s.task.ref.Workspace,
		}, s.task.limits,
		func(w executor.Wait) {
			waited = true
			resource := schemas.WaitsForSandbox
			if w == executor.WaitMemory {
				resource = schemas.WaitsForMemory
			}
			p.reportWait(ctx, s.task, resource)
		})
	if waited {
		p.reportWait(ctx, s.task, "")
	}
	if errors.Is(err, executor.ErrTooLarge) {
		return b, &schemas.Error{Code: errcode.LimitTooLarge, Message: err.Error(), Hint: "ask for less memory"}
	}
	if _, ok := errors.AsType[*executor.UnavailableError](err); ok && ctx.Err() == nil {
		reason := executor.ReasonOf(err)
		p.Log.WarnContext(ctx, "no boxes for the task pool",
			"task_id", s.task.id(), "pool", pool, "reason", reason, "error", err) // the error is for operators
		return b, jobs.Unavailable(fmt.Errorf(
			"the task pool %s has no boxes on this worker (%s)", pool, reason))
	}
	if err != nil {
		return b, p.handleFullDisk(ctx, nil, fmt.Errorf("acquire a box: %w", withCause(ctx, err)))
	}
	info := b.Info()
	if want := s.task.job.Task.MinTier; !drivers.TierSatisfies(info.Tier, want) {
		b.Release()
		return b, &schemas.Error{
			Code: errcode.TierUnavailable, Message: "the task requires " + want + ", but this worker has " + info.Tier,
			Hint: "send it to a task pool whose workers have " + want + ", or leave min_tier out",
		}
	}
	b.sandbox = schemas.Sandbox{
		Driver: info.Driver, EngineVersion: info.EngineVersion, Tier: info.Tier,
		Limits: info.Limits, Environment: info.Environment, Boot: b.Boot(),
	}
	return b, nil
}

// networkKey returns the patterns of hosts as one text, for executor.Key.
func networkKey(network []allowlist.Pattern) string {
	names := make([]string, len(network))
	for i, p := range network {
		names[i] = p.String()
	}
	return strings.Join(names, " ")
}

// reportWait emits which resource the task waits for and writes it to the record. With "", the record says
// that the task no longer waits. A failure does not stop the task.
func (p *Pipeline) reportWait(ctx context.Context, t task, resource string) {
	if resource != "" {
		t.job.Emit(ctx, schemas.Progress{Stage: "waiting", Text: "waits for " + resource})
	}
	if err := t.job.SetWaitsFor(ctx, resource); err != nil && ctx.Err() == nil {
		p.Log.WarnContext(ctx, "wait not recorded", "task_id", t.id(), "error", err)
	}
}
