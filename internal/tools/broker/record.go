package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// record writes the result, as the program gets it, to the journal: for a mutating call before it returns,
// for other calls in the background.
func record(cfg Config, rec *journalWriter) layer {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			r, err := next(ctx, c)
			entry := JournalEntry{Key: c.key, State: Answered, Run: cfg.Task.Run, Value: r.Value, Files: r.files}
			if err != nil {
				failure, ok := errors.AsType[*Error](err)
				if !ok || failure.Code != errcode.ToolFailed {
					return r, err // the call was not made, or its outcome is unknown
				}
				entry.Error = failure
			}
			if !c.def.Annotations.Mutates() {
				rec.recordAsync(ctx, entry)
				return r, err
			}
			if failed := rec.write(ctx, rec.journal.Record, entry); failed != nil {
				cfg.Log.ErrorContext(ctx, "recording of a tool result failed",
					"task_id", cfg.Task.ID, "tool", c.ID(), "error", failed)
				lost := fail(c, errcode.Internal, "the call was made, but its result could not be recorded")
				lost.Sent = true
				return Result{}, lost
			}
			return r, err
		}
	}
}
