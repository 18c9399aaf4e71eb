package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// record puts the answer into the journal as the program gets it. For a mutating call that is done
// before the program sees the answer; for others, beside it.
func record(cfg Config, rec *journalWriter) func(handler) handler {
	return func(next handler) handler {
		return func(ctx context.Context, c Call) (Result, error) {
			r, err := next(ctx, c)
			entry := JournalEntry{Key: c.key, State: Answered, Run: cfg.Task.Run, Value: r.Value, Files: r.files}
			if err != nil {
				failure, ok := errors.AsType[*Error](err)
				if !ok || failure.Code != errcode.ToolFailed {
					return r, err // what became of the call is not known, or it was not made
				}
				entry.Error = failure
			}
			if !c.def.Annotations.Mutates() {
				rec.recordAsync(ctx, entry)
				return r, err
			}
			if failed := rec.write(ctx, rec.journal.Record, entry); failed != nil {
				cfg.Log.ErrorContext(ctx, "answer of a tool not recorded", "task_id", cfg.Task.ID, "tool", c.ID(), "error", failed)
				lost := fail(c, errcode.Internal, "the call was made, but its answer could not be recorded")
				lost.Sent = true
				return Result{}, lost
			}
			return r, err
		}
	}
}
