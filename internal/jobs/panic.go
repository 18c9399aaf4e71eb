package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// contain calls fn, and returns its error. If fn panics, contain logs the stack with the attributes and returns an
// error: the message in question must not end the process, which would panic again after each restart.
func contain(ctx context.Context, log *slog.Logger, fn func() error, attrs ...any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "message panicked",
				append(attrs, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
			err = fmt.Errorf("the fleet has a bug at this message, and panicked: %v; its log has the details", p)
		}
	}()
	return fn()
}
