package engine

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestAdmitBurst checks that of runs that begin at the same time, only as many begin as the limit allows.
func TestAdmitBurst(t *testing.T) {
	e := newEngine(t)
	e.MaxRuns = 3
	var admitted atomic.Int64
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if e.admit(t.Context(), "acme") == nil {
				admitted.Add(1)
			}
		})
	}
	calls.Wait()
	if n := admitted.Load(); n != 3 {
		t.Errorf("%d of 50 runs were admitted, want 3", n)
	}
}
