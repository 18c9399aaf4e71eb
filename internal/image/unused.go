package image

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// Unused is for how long an unpacked image that nobody uses is worth its place.
const Unused = 30 * 24 * time.Hour

// Release says that nothing is made of the root any more: Collect may remove it one day. The end of the
// process says so too. Releasing twice, or a root that is no unpacked image, does nothing.
func (r Root) Release() {
	if r.held != nil {
		_ = r.held.Close() // it was only locked
	}
}

// hold notes that an unpacked image is used, and keeps Collect from it while the file is open. It is
// fs.ErrNotExist when the image is not there.
func hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	// Where there are no locks Collect gets none either, and removes nothing.
	ours, err := f.Stat()
	named, failed := os.Stat(dir)
	if err = errors.Join(err, failed); err == nil && !os.SameFile(ours, named) { // Collect was faster
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // if it is somebody else's, that one notes it
	return f, nil
}

// Collect removes from a directory of unpacked images those that no process uses, nor has begun to use
// since a time, and returns their names. Several processes may do so, and Unpack, at once.
func Collect(dir string, unused time.Duration) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("collect images: %w", err)
	}
	for _, e := range entries {
		if _, odd := hex.DecodeString(e.Name()); odd != nil || len(e.Name()) != nameLen || !e.IsDir() {
			continue // not made by Unpack
		}
		temp, failed := takeAway(dir, e.Name(), unused)
		if failed == nil && temp != "" {
			removed = append(removed, e.Name())
			failed = hostdir.Remove(temp)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("collect images: %w", failed))
		}
	}
	sweep(dir)
	return removed, err
}

// takeAway moves an image that nobody uses into a directory of its own, in one step; empty: it stays.
func takeAway(dir, name string, unused time.Duration) (temp string, err error) {
	path := filepath.Join(dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return "", nil // it is used, or nobody can tell
	}
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < unused {
		return "", nil // another process has taken it, or used it
	}
	if temp, err = os.MkdirTemp(dir, temporary); err != nil {
		return "", err
	}
	if err := os.Rename(path, filepath.Join(temp, name)); err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

// temporary begins the names of what is being unpacked or removed.
const temporary = "new-"

// sweep removes what processes that were killed have left half unpacked, or half removed.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), temporary) && time.Since(info.ModTime()) > abandoned {
			_ = hostdir.Remove(filepath.Join(dir, e.Name())) // or the next one does
		}
	}
}
