package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// intent records a mutating call in the journal before it is made, so that a later run of the task knows
// that it may have taken effect. If the call was certainly not made, intent records that. Two runs of a task may
// overlap, because one has lost its lease without knowing it. Of their equal calls, only one is made, unless the call
// may be repeated.
func intent(cfg Config, rec *journalWriter) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if !c.def.Annotations.Mutates() {
			return next(ctx, c)
		}
		entry := JournalEntry{Key: c.key, State: Intended, Run: cfg.Task.Run, Version: c.version}
		write := func() error { return rec.writeIntent(ctx, &entry) }
		if c.repeatable() {
			write = func() error { return rec.write(ctx, rec.journal.Record, entry) }
		}
		err := write()
		if errors.Is(err, ErrOvertaken) {
			return Result{}, fail(c, errcode.InDoubt, "another run may have made this call").
				hint(checkEffects)
		}
		if err != nil {
			return Result{}, fail(c, errcode.Internal,
				"the call was not made, because it could not be recorded: %v", err)
		}
		r, err := next(ctx, c)
		e, ok := errors.AsType[*Error](err)
		if ok && !e.Sent && e.Code != errcode.ToolFailed && e.Code != errcode.Internal {
			entry.State = NotMade
			if recordErr := write(); recordErr != nil && !errors.Is(recordErr, ErrOvertaken) {
				// This is safe: the call stays in doubt.
				cfg.Log.WarnContext(ctx, "recording of state not_made failed",
					"task_id", cfg.Task.ID, "tool", c.ID(), "error", recordErr)
			}
		}
		return r, err
	}
}

// repeatable reports whether the call may be made although an earlier run may have made it.
func (c Call) repeatable() bool {
	return !c.def.Annotations.Mutates() || c.def.Annotations.Idempotent
}
