package broker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Budget bounds what one execution may ask of tools. Zero fields have the defaults.
type Budget struct {
	Calls      int           // 1,000
	Bytes      int64         // of arguments and answers; 256 MiB
	Concurrent int           // calls at once, further ones wait; 16
	PerCall    time.Duration // 5 min
	Total      time.Duration // of all calls together; 1 h
}

func (b Budget) withDefaults() Budget {
	if b.Calls == 0 {
		b.Calls = 1000
	}
	if b.Bytes == 0 {
		b.Bytes = 256 << 20
	}
	if b.Concurrent == 0 {
		b.Concurrent = 16
	}
	if b.PerCall == 0 {
		b.PerCall = 5 * time.Minute
	}
	if b.Total == 0 {
		b.Total = time.Hour
	}
	return b
}

var errCallTime = errors.New("the call's time is over")

// budget counts before the call and after it: a call that begins within the budget may end beyond
// it, by at most its own size and time.
func budget(b Budget) func(Caller) Caller {
	var mu sync.Mutex
	var calls int
	var bytes int64
	var spent time.Duration
	slots := make(chan struct{}, b.Concurrent)
	admit := func(c Call) error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		bytes += int64(len(c.Args))
		switch {
		case calls > b.Calls:
			return fail(c, OverBudget, "the task may make %d tool calls", b.Calls)
		case bytes > b.Bytes:
			return fail(c, OverBudget, "the task may exchange %d bytes with tools", b.Bytes)
		case spent > b.Total:
			return fail(c, OverBudget, "the task may spend %s in tool calls", b.Total)
		}
		return nil
	}
	return func(next Caller) Caller {
		return func(ctx context.Context, c Call) (Result, error) {
			if err := admit(c); err != nil {
				return Result{}, err
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return Result{}, context.Cause(ctx)
			}
			limited, cancel := context.WithTimeoutCause(ctx, b.PerCall, errCallTime)
			defer cancel()
			started := time.Now()
			r, err := next(limited, c)
			mu.Lock()
			spent += time.Since(started)
			bytes += int64(len(r.Value))
			mu.Unlock()
			if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errCallTime) {
				if _, known := errors.AsType[*Error](err); !known {
					err = fail(c, TimedOut, "the call took more than %s", b.PerCall)
				}
			}
			return r, err
		}
	}
}
