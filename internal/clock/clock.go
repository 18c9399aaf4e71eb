// Package clock has functions that wait until a time has passed or a context ends, and one that converts times to
// numbers, such as those in files.
package clock

import (
	"context"
	"math"
	"sync"
	"time"
)

// Repeat calls fn every d, in a goroutine, until ctx ends or stop is called. stop waits for a running fn.
func Repeat(ctx context.Context, d time.Duration, fn func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if ctx.Err() != nil { // both are ready if fn took longer than d
					return
				}
				fn()
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// Nanos returns the nanoseconds from 1970 to t. Before 1677 and after 2262, where they exceed int64, it returns the
// nearest value. Files may have any time: programs and archives set it.
func Nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Sleep waits for d. If ctx ends first, it returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// After returns a context with ctx's values. It ends d after ctx has ended, with the same cause.
func After(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = Sleep(later, d) // ends early if the caller cancels
		cancel(context.Cause(ctx))
	})
	return later, func() { stop(); cancel(context.Canceled) }
}
