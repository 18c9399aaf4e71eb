package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

var errPanicked = errors.New("this message makes the fleet panic, which is a bug: see the fleet's log")

// contain calls fn, and returns its error. If fn panics, contain logs the stack with the attributes and returns
// errPanicked: the message in question must not end the process, which would panic again after each restart.
func contain(ctx context.Context, log *slog.Logger, fn func() error, attrs ...any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "handling of a message panicked",
				append(attrs, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	return fn()
}
