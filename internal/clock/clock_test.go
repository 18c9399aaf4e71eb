package clock_test

import (
	"context"
	"errors"
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
	})
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
