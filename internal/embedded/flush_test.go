package embedded

import (
	"errors"
	"runtime"
	"sync"
	"testing"
)

// TestWaitingCallersShareAFlush checks that callers that wait while the file system is flushed share the next flush and
// its error, and that none shares the flush that began before its call.
func TestWaitingCallersShareAFlush(t *testing.T) {
	f, err := openFlusher(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	errSecond := errors.New("second")
	flushes := 0
	entered, release := make(chan struct{}), make(chan struct{})
	inner := f.all.flush
	f.all.flush = func() error {
		if flushes++; flushes > 1 {
			return errSecond
		}
		close(entered)
		<-release
		return inner()
	}
	var callers sync.WaitGroup
	callers.Go(func() {
		if err := f.Sync("/fleet/first"); err != nil {
			t.Errorf("first Sync() = %v, want nil", err)
		}
	})
	<-entered
	const waiting = 5
	for range waiting {
		callers.Go(func() {
			if err := f.Sync("/fleet/later"); !errors.Is(err, errSecond) {
				t.Errorf("later Sync() = %v, want %v", err, errSecond)
			}
		})
	}
	for n := 0; n < waiting; runtime.Gosched() {
		f.all.mu.Lock()
		if f.all.next != nil {
			n = f.all.next.callers
		}
		f.all.mu.Unlock()
	}
	close(release)
	callers.Wait()
	if flushes != 2 {
		t.Errorf("%d flushes for one caller and %d that waited, want 2", flushes, waiting)
	}
}
