package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/plugin"
)

// member is a plugin of a worker.
type member struct {
	plugin  plugin.Plugin
	running atomic.Int32 // number of invocations that have not returned
}

// maxRunning limits the goroutines of a plugin whose hooks do not return. Further invocations are errors.
const maxRunning = 256

var (
	errTimeout = errors.New("hook exceeded its time limit")
	errFull    = fmt.Errorf("%d invocations of hooks have not returned", maxRunning)
	errPanic   = errors.New("hook panicked; the worker's log has the stack trace")
	errExit    = errors.New("hook ended its goroutine without returning")
	errFailed  = errors.New("hook failed; the worker's log has its error")
)

// run invokes a hook. If validate or call refuses, run returns a *plugin.Refusal with valid fields. It logs any other
// error, and returns one without the plugin's text, which is not for the task's submitter.
func run[T any](
	ctx context.Context, s *Set, m *member, hook string, t plugin.Task, do func(context.Context) (T, error),
) (T, error) {
	value, err := invoke(ctx, s.log, m, hook, do)
	if err == nil {
		return value, nil
	}
	var zero T
	r, _ := errors.AsType[*plugin.Refusal](err) // a nil *Refusal counts as an ordinary error
	if r != nil && (hook == "validate" || hook == "call") {
		return zero, s.valid(ctx, m, hook, t, r)
	}
	s.log.WarnContext(ctx, "plugin failed",
		"plugin", m.plugin.Name(), "hook", hook, "task_id", t.ID, "tenant", t.Tenant, "error", err)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case !slices.Contains([]error{errTimeout, errFull, errPanic, errExit}, err):
		err = errFailed
	}
	return zero, fmt.Errorf("plugin %s: %s: %w", m.plugin.Name(), hook, err)
}

// invoke runs a hook in its own goroutine, so that the worker survives a panic and a hook that never returns. It
// ignores what a hook returns after its time limit.
func invoke[T any](
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
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	returned := make(chan outcome, 1)
	go func() { // ends with the hook; maxRunning limits hooks that do not return
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

// valid returns a refusal with texts of limited size and an error code that the result of a task can have. It logs that
// it drops an invalid code.
func (s *Set) valid(ctx context.Context, m *member, hook string, t plugin.Task, r *plugin.Refusal) *plugin.Refusal {
	code := text.Truncate(r.Code, maxText)
	if code != "" && !errorCode.MatchString(code) {
		s.log.WarnContext(ctx, "plugin refused with an invalid error code",
			"plugin", m.plugin.Name(), "hook", hook, "task_id", t.ID, "code", code)
		code = ""
	}
	return &plugin.Refusal{
		Code: code, Message: text.Truncate(r.Message, maxText), Hint: text.Truncate(r.Hint, maxText),
		Line: max(0, r.Line),
	}
}
