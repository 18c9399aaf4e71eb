package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// intent puts a mutating call into the journal before it is made, so that whoever takes the task
// over after a crash knows that it may have been. An intent that certainly came to nothing is void.
func intent(cfg Config, rec *journalWriter) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			if !c.def.Annotations.Mutates() {
				return next(ctx, c)
			}
			entry := JournalEntry{Key: c.key, State: Intended, Run: cfg.Task.Run}
			if err := rec.write(ctx, rec.journal.Intent, entry); err != nil {
				return Result{}, fail(c, errcode.Internal, "the call was not made: it could not be recorded: %v", err)
			}
			r, err := next(ctx, c)
			if e, ok := errors.AsType[*Error](err); ok && !e.Sent && e.Code != errcode.ToolFailed && e.Code != errcode.Internal {
				entry.State = NotMade
				if lost := rec.write(ctx, rec.journal.Record, entry); lost != nil { // the intent stands: in doubt is safe
					cfg.Log.WarnContext(ctx, "call that was not made not recorded as such", "task_id", cfg.Task.ID, "tool", c.ID(), "error", lost)
				}
			}
			return r, err
		}
	}
}
