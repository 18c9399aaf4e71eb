package broker

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/errcode"
)

// record writes the result, as the program gets it, to the journal. For a mutating call it does so before
// the program gets the result, for other calls in the background.
func record(cfg Config, rec *journalWriter) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		r, err := next(ctx, c)
		entry := JournalEntry{
			Key: c.key, State: Answered, Run: cfg.Task.Run, Value: r.Value, Content: r.Content, Files: r.files,
		}
		if err != nil {
			failure, ok := errors.AsType[*Error](err)
			if !ok || failure.Code != errcode.ToolFailed {
				return r, err // nothing to replay: not made, outcome unknown, or a result that cannot be used
			}
			entry.Error = failure
		}
		entry, sealErr := entry.sealed(cfg.Hooks)
		if sealErr != nil {
			return Result{}, markSent(fail(c, errcode.Internal, "the result could not be recorded: %v", sealErr))
		}
		if !c.def.Annotations.Mutates() {
			rec.recordAsync(ctx, entry)
			return r, err
		}
		if recordErr := rec.write(ctx, rec.journal.Record, entry); recordErr != nil {
			cfg.Log.ErrorContext(ctx, "recording of tool result failed",
				"task_id", cfg.Task.ID, "tool", c.ID(), "error", recordErr)
			return Result{}, markSent(
				fail(c, errcode.Internal, "the call was made, but its result could not be recorded"))
		}
		return r, err
	}
}
