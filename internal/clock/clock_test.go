package clock_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		stop := clock.Repeat(t.Context(), time.Second, func() { n.Add(1) })
		<-time.After(3500 * time.Millisecond)
		stop()
		if got := n.Load(); got != 3 {
			t.Errorf("Repeat(1s) called fn %d times in 3.5 s, want 3", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer clock.Repeat(ctx, time.Second, func() { n.Add(1); cancel() })()
		<-time.After(time.Minute)
		if got := n.Load(); got != 4 {
			t.Errorf("Repeat(1s) called fn %d times although the first call ended its context, want 1", got-3)
		}
		for range 20 { // whether a tick that is due or the end comes first is a matter of chance
			begun, late := make(chan bool, 9), false
			stop := clock.Repeat(t.Context(), time.Second, func() { begun <- true; <-time.After(3 * time.Second) })
			<-begun
			<-time.After(2 * time.Second)
			before := time.Now()
			stop()
			select {
			case late = <-begun:
			default:
			}
			if took := time.Since(before); late || took != time.Second {
				t.Errorf("stop() after 2 of 3 s of fn took %v, and fn ran again: %v; want 1s, false", took, late)
			}
		}
	})
}

func TestNanos(t *testing.T) {
	for at, want := range map[string]int64{
		"1970-01-01T00:00:00.000000001Z": 1, "1960-01-01T00:00:00Z": -315619200e9,
		"1677-09-21T00:12:43.145224192Z": math.MinInt64, "1677-09-21T00:12:43Z": math.MinInt64,
		"0001-01-01T00:00:00Z": math.MinInt64, "2262-04-11T23:47:16.854775807Z": math.MaxInt64,
		"2262-04-11T23:47:17Z": math.MaxInt64, "9999-12-31T23:59:59Z": math.MaxInt64,
	} {
		parsed, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := clock.Nanos(parsed); got != want {
			t.Errorf("Nanos(%s) = %d, want %d", at, got, want)
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := clock.Sleep(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("Sleep(1m) = %v after %v, want nil after 1m", err, time.Since(start))
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		start = time.Now()
		if err := clock.Sleep(ctx, time.Minute); !errors.Is(err, stopped) || time.Since(start) != time.Second {
			t.Errorf("Sleep(1m) = %v after %v, want %v after 1s", err, time.Since(start), stopped)
		}
	})
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		ctx, end := context.WithCancelCause(t.Context())
		later, cancel := clock.After(ctx, time.Minute)
		defer cancel()
		early, cancelEarly := clock.After(ctx, time.Minute)
		start := time.Now()
		end(stopped)
		cancelEarly()
		<-early.Done()
		if took := time.Since(start); took != 0 {
			t.Errorf("After(1m) ended %v after its cancellation, want 0s", took)
		}
		<-later.Done()
		if took, cause := time.Since(start), context.Cause(later); took != time.Minute || !errors.Is(cause, stopped) {
			t.Errorf("After(1m) ended after %v with %v, want 1m and %v", took, cause, stopped)
		}
	})
}
