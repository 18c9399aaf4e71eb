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
	running atomic.Int32 // invocations that have not returned
}

// maxRunning bounds the goroutines of a plugin whose hooks do not return. Further invocations are errors.
const maxRunning = 256

var (
	errLate  = errors.New("it exceeded its time limit")
	errFull  = fmt.Errorf("%d invocations of it have not returned", maxRunning)
	errPanic = errors.New("it panicked: the worker's log has the stack")
	errExit  = errors.New("its goroutine ended before it returned")
	errOwn   = errors.New("it failed: the worker's log has its error")
)

// run invokes a hook and logs its error. It returns a *plugin.Refusal, or an error without the plugin's
// text, which is for the log and not for the caller of the task.
func run[T any](
	ctx context.Context, s *Set, m *member, hook string, t plugin.Task, do func(context.Context) (T, error),
) (T, error) {
	value, err := guarded(ctx, s.log, m, hook, do)
	if err == nil {
		return value, nil
	}
	var zero T
	if r := refused(err); r != nil {
		return zero, r
	}
	s.log.WarnContext(ctx, "plugin failed",
		"plugin", m.plugin.Name(), "hook", hook, "task_id", t.ID, "tenant", t.Tenant, "error", err)
	if !slices.Contains([]error{errLate, errFull, errPanic, errExit}, err) && ctx.Err() == nil {
		err = errOwn
	}
	return zero, fmt.Errorf("plugin %s: %s: %w", m.plugin.Name(), hook, err)
}

// guarded invokes a hook in its own goroutine, so that the task survives a panic and a hook that never
// returns. It ignores what returns after the deadline.
func guarded[T any](
	ctx context.Context, log *slog.Logger, m *member, hook string, do func(context.Context) (T, error),
) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var zero T
	if m.running.Add(1) > maxRunning {
		m.running.Add(-1)
		return zero, errFull
	}
	limit := plugin.Deadline
	if hook == "generate" {
		limit = plugin.GenerateDeadline
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	returned := make(chan outcome, 1)
	go func() { // ends with the hook; maxRunning bounds hooks that do not return
		o := outcome{err: errExit}
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(ctx, "plugin panicked",
					"plugin", m.plugin.Name(), "hook", hook, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				o.err = errPanic
			}
			m.running.Add(-1)
			returned <- o
		}()
		o.value, o.err = do(ctx)
	}()
	select {
	case o := <-returned:
		return o.value, o.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

// refused returns the refusal in an error; nil without one.
func refused(err error) *plugin.Refusal {
	r, _ := errors.AsType[*plugin.Refusal](err) // a nil *Refusal counts as an ordinary error
	return r
}
