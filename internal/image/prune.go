package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/filelock"
)

// PruneAfter is how long an unused image is worth its disk space.
const PruneAfter = 30 * 24 * time.Hour

// temporary begins the names of directories that are being unpacked or removed.
const temporary = "new-"

// Release allows Prune to remove the root, as the end of the process does. Releasing a root twice, or one that is
// not an unpacked image, does nothing.
func (r Root) Release() {
	if r.lock != nil {
		_ = r.lock.Close() // it was only locked
	}
}

// lock marks an unpacked image as used, and keeps Prune from removing it until the file is closed. It returns
// fs.ErrNotExist if the image is not there.
func lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	// A file system may lack locks; then Prune gets none either, and removes nothing.
	if err = filelock.RLock(ctx, f); err != nil && ctx.Err() != nil {
		return nil, errors.Join(err, f.Close())
	}
	locked, err := f.Stat()
	named, nameErr := os.Stat(dir)
	if err = errors.Join(err, nameErr); err == nil && !os.SameFile(locked, named) { // Prune was faster
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // fails for an image of another user, who does the same
	return f, nil
}

// Prune removes the unpacked images in dir that no process uses and that were last locked before the given time
// ago, and returns their names. Several processes may call it, and Unpack, at once.
func Prune(dir string, unused time.Duration) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("prune images: %w", err)
	}
	for _, e := range entries {
		if _, notHex := hex.DecodeString(e.Name()); notHex != nil || len(e.Name()) != nameLen || !e.IsDir() {
			continue // not made by Unpack
		}
		temp, failed := detach(dir, e.Name(), unused)
		if failed == nil && temp != "" {
			removed = append(removed, e.Name())
			failed = hostdir.Remove(temp)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("prune images: %w", failed))
		}
	}
	removeAbandoned(dir)
	return removed, err
}

// detach moves an unused image into a temporary directory, in one step. It returns "" for an image that stays.
func detach(dir, name string, unused time.Duration) (temp string, err error) {
	path := filepath.Join(dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if filelock.TryLock(f) != nil {
		return "", nil // it is used, or there are no locks
	}
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < unused {
		return "", nil // it is gone, or was used
	}
	if temp, err = os.MkdirTemp(dir, temporary); err != nil {
		return "", err
	}
	if err := os.Rename(path, filepath.Join(temp, name)); err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

// removeAbandoned removes temporary directories of processes that were killed.
func removeAbandoned(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), temporary) && time.Since(info.ModTime()) > abandoned {
			_ = hostdir.Remove(filepath.Join(dir, e.Name())) // or the next one does
		}
	}
}
