package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

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
	go func() { got <- filelock.RLock(t.Context(), b) }()
	if err := filelock.Unlock(a); err != nil {
		t.Fatalf("Unlock() = %v, want nil", err)
	}
	if err := <-got; err != nil {
		t.Errorf("RLock() = %v, want nil", err)
	}
	if err := filelock.TryRLock(a); err != nil {
		t.Errorf("second TryRLock() = %v, want nil", err)
	}
}
