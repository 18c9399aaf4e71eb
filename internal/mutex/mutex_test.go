package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/codefleet/codefleet/internal/mutex"
)

// A second Lock waits for Unlock.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mutex.New()
		if err := m.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		locked := false
		go func() {
			if err := m.Lock(t.Context()); err != nil {
				t.Error(err)
			}
			locked = true
		}()
		if synctest.Wait(); locked {
			t.Fatal("locked twice")
		}
		m.Unlock()
		if synctest.Wait(); !locked {
			t.Error("not locked after Unlock")
		}
	})
}

// A Lock whose context ends returns, and leaves the mutex to others.
func TestLockContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mutex.New()
		if err := m.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- m.Lock(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Lock = %v, want context.Canceled", err)
		}
		m.Unlock()
		if err := m.Lock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
