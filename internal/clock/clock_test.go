package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		stop := clock.Repeat(t.Context(), time.Second, func() { n++ })
		time.Sleep(3500 * time.Millisecond)
		stop()
		if n != 3 {
			t.Errorf("Repeat(1s) called %d times in 3.5 s, want 3", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer clock.Repeat(ctx, time.Second, func() { n++; cancel() })()
		time.Sleep(time.Minute)
		if n != 4 {
			t.Errorf("Repeat(1s) called %d times after its context ended, want 1", n-3)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := clock.Sleep(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("Sleep(1m) = %v after %v", err, time.Since(start))
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
