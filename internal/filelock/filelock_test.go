package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/filelock"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if err := filelock.TryLock(a); err != nil {
		t.Fatalf("TryLock() = %v, want nil", err)
	}
	if err := filelock.TryLock(b); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("TryLock() of a locked file = %v, want %v", err, filelock.ErrLocked)
	}
	if err := filelock.TryRLock(b); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("TryRLock() of a locked file = %v, want %v", err, filelock.ErrLocked)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filelock.Lock(ended, b); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock() with an ended context = %v, want %v", err, context.Canceled)
	}
	got := make(chan error, 1)
	for name, lock := range map[string]func(context.Context, *os.File) error{
		"RLock": filelock.RLock, "Lock": filelock.Lock,
	} {
		go func() { got <- lock(t.Context(), b) }()
		select {
		case err := <-got:
			t.Fatalf("%s() of a locked file = %v, want that it waits", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		if err := filelock.Unlock(a); err != nil {
			t.Fatalf("Unlock() = %v, want nil", err)
		}
		if err := <-got; err != nil {
			t.Errorf("%s() = %v, want nil", name, err)
		}
		other := filelock.TryRLock(a)
		if want := map[string]error{"Lock": filelock.ErrLocked}[name]; !errors.Is(other, want) {
			t.Errorf("TryRLock() after %s() = %v, want %v", name, other, want)
		}
		if err := errors.Join(filelock.Unlock(b), filelock.TryLock(a)); err != nil {
			t.Fatal(err)
		}
	}
}
