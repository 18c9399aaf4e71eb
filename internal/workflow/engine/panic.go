package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// panicError is a panic of this process while it worked on a run.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("this workflow run makes the fleet panic (%v), which is a bug: see the fleet's log", e.value)
}

// contain is called by defer. It turns a panic of the work on a run into an error, and logs it with its stack: the
// process works on other runs, too, and would panic again after each restart.
func (e *Engine) contain(ctx context.Context, tenant, id string, err *error) {
	if p := recover(); p != nil {
		e.log.ErrorContext(ctx, "workflow run panicked",
			"tenant", tenant, "run", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = &panicError{p}
	}
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*panicError](err)
	return ok
}
