package broker

import "context"

// intent puts a mutating call into the journal before it is made, so that whoever takes the task
// over after a crash knows that it may have been.
func intent(cfg Config, rec *recorder) func(Caller) Caller {
	return func(next Caller) Caller {
		return func(ctx context.Context, c Call) (Result, error) {
			if c.def.Annotations.Mutates() {
				entry := Recorded{Key: c.key, State: Intended, Attempt: cfg.Task.Attempt}
				if err := rec.write(ctx, rec.journal.Intent, entry); err != nil {
					return Result{}, fail(c, Internal, "the call was not made: it could not be recorded: %v", err)
				}
			}
			return next(ctx, c)
		}
	}
}
