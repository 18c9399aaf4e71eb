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

// PruneAfter is how long an unused image is kept.
const PruneAfter = 30 * 24 * time.Hour

// tempPrefix begins the names of directories that are being unpacked or removed.
const tempPrefix = "new-"

// Release allows Prune to remove the root. The end of the process has the same effect. Releasing a root twice, or a
// root that is not an unpacked image, does nothing.
func (r Root) Release() {
	if r.lock != nil {
		_ = r.lock.Close() // nothing was written to it
	}
}

// lock marks an unpacked image as used, and keeps Prune from removing it until the file is closed. The error is
// fs.ErrNotExist if the image is not unpacked.
func lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	// If the file system does not support locks, Prune cannot lock the image either, and removes nothing.
	if err = filelock.RLock(ctx, f); err != nil && ctx.Err() != nil {
		return nil, errors.Join(err, f.Close())
	}
	locked, err := f.Stat()
	named, nameErr := os.Stat(dir)
	if err = errors.Join(err, nameErr); err == nil && !os.SameFile(locked, named) { // Prune has removed the image
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // fails for another user's image
	return f, nil
}

// Prune removes the unpacked images in dir that no process uses and that were not used for the given time, and returns
// their names. It also removes the temporary directories of killed processes. Several processes may call Prune and
// Unpack at once.
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
			continue // not created by Unpack
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

// detach atomically moves an unused image into a temporary directory, and returns that directory. It returns "" if the
// image stays.
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
		return "", nil // the image is in use, or cannot be locked
	}
	locked, err := f.Stat()
	if err != nil {
		return "", err
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(locked, named) || time.Since(named.ModTime()) < unused {
		return "", nil // the image was removed, perhaps unpacked again, or used recently
	}
	if temp, err = os.MkdirTemp(dir, tempPrefix); err != nil {
		return "", err
	}
	if err := os.Rename(path, filepath.Join(temp, name)); err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

// removeAbandoned removes the temporary directories of killed processes, which it recognises by their age.
func removeAbandoned(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), tempPrefix) && time.Since(info.ModTime()) > abandoned {
			_ = hostdir.Remove(filepath.Join(dir, e.Name())) // tried again by the next call
		}
	}
}
