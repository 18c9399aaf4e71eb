package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// intent records a mutating call in the journal before it is made, so that a later run of the task knows
// that it may have taken effect. If the call was certainly not made, intent records that.
func intent(cfg Config, rec *journalWriter) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		if !c.def.Annotations.Mutates() {
			return next(ctx, c)
		}
		entry := JournalEntry{Key: c.key, State: Intended, Run: cfg.Task.Run}
		if err := rec.write(ctx, rec.journal.Intent, entry); err != nil {
			return Result{}, fail(c, errcode.Internal,
				"the call was not made, because it could not be recorded: %v", err)
		}
		r, err := next(ctx, c)
		e, ok := errors.AsType[*Error](err)
		if ok && !e.Sent && e.Code != errcode.ToolFailed && e.Code != errcode.Internal {
			entry.State = NotMade
			if recordErr := rec.write(ctx, rec.journal.Record, entry); recordErr != nil {
				// This is safe: the call stays in doubt.
				cfg.Log.WarnContext(ctx, "recording of state not_made failed",
					"task_id", cfg.Task.ID, "tool", c.ID(), "error", recordErr)
			}
		}
		return r, err
	}
}
