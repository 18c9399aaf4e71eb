package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/codefleet/codefleet/plugin"
)

// member is a plugin of a worker.
type member struct {
	plugin  plugin.Plugin
	running atomic.Int32 // calls of its hooks that have not returned
}

// maxRunning bounds what a plugin that never returns can hold: its hooks are errors from then on.
const maxRunning = 256

var (
	errLate  = errors.New("no answer in time")
	errFull  = fmt.Errorf("%d calls of it have not returned", maxRunning)
	errPanic = errors.New("it panicked: the worker's log has the stack")
	errExit  = errors.New("its goroutine ended without an answer")
	errOwn   = errors.New("it failed: the worker's log has its error")
)

// run calls a hook and logs its error. The one that it returns is a *plugin.Refusal or says nothing of
// the plugin's own text, which is for the log and not for the task's owner.
func run[T any](ctx context.Context, s *Set, m *member, hook string, t plugin.Task, do func(context.Context) (T, error)) (T, error) {
	value, err := guarded(ctx, s.log, m, hook, do)
	if err == nil {
		return value, nil
	}
	var none T
	if r := refused(err); r != nil {
		return none, r
	}
	s.log.WarnContext(ctx, "plugin failed", "plugin", m.plugin.Name(), "hook", hook, "task_id", t.ID, "tenant", t.Tenant, "error", err)
	if !slices.Contains([]error{errLate, errFull, errPanic, errExit}, err) && ctx.Err() == nil {
		err = errOwn
	}
	return none, fmt.Errorf("plugin %s: %s: %w", m.plugin.Name(), hook, err)
}

// guarded calls a hook in a goroutine of its own, so that neither a panic nor a hook that never returns
// reaches the task. What comes after the deadline is thrown away.
func guarded[T any](ctx context.Context, log *slog.Logger, m *member, hook string, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if m.running.Add(1) > maxRunning {
		m.running.Add(-1)
		return none, errFull
	}
	most := plugin.Deadline
	if hook == "generate" {
		most = plugin.GenerateDeadline
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, errLate)
	defer cancel()
	answers := make(chan answer, 1)
	go func() { // ends when the hook does: maxRunning bounds those that never do
		a := answer{err: errExit}
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(ctx, "plugin panicked", "plugin", m.plugin.Name(), "hook", hook, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				a.err = errPanic
			}
			m.running.Add(-1)
			answers <- a
		}()
		a.value, a.err = do(ctx)
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// refused is the refusal in an error; nil when the error is none.
func refused(err error) *plugin.Refusal {
	r, _ := errors.AsType[*plugin.Refusal](err) // a nil *Refusal refuses nothing: it is an error as any other
	return r
}
