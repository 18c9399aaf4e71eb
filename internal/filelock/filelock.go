//go:build unix

// Package filelock locks files with flock, between processes and between holders in one process. A lock ends
// with Unlock, when the file is closed, or when the process ends for any reason.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/clock"
)

// ErrLocked is returned by TryLock and TryRLock while another holder has the lock.
var ErrLocked = errors.New("locked by another holder")

const retryEvery = 2 * time.Millisecond

// TryLock takes the exclusive lock of f without waiting.
func TryLock(f *os.File) error { return try(f, unix.LOCK_EX) }

// TryRLock takes the shared lock of f without waiting.
func TryRLock(f *os.File) error { return try(f, unix.LOCK_SH) }

// Lock takes the exclusive lock of f. If ctx ends before it gets the lock, it returns the cause.
func Lock(ctx context.Context, f *os.File) error { return wait(ctx, f, unix.LOCK_EX) }

// RLock takes the shared lock of f. If ctx ends before it gets the lock, it returns the cause.
func RLock(ctx context.Context, f *os.File) error { return wait(ctx, f, unix.LOCK_SH) }

// Unlock releases the lock of f.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

func wait(ctx context.Context, f *os.File, how int) error {
	for {
		err := try(f, how)
		if !errors.Is(err, ErrLocked) {
			return err
		}
		if err := clock.Sleep(ctx, retryEvery); err != nil {
			return err
		}
	}
}

func try(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
