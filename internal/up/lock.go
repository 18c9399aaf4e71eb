package up

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/dirsync"
	"github.com/codefleet/codefleet/internal/filelock"
)

const lockName = "lock"

// ErrInUse is the error of a second fleet in the same data directory.
var ErrInUse = errors.New("the data directory is in use")

// ErrUnusable is the error of a data directory that cannot be used, unless its disk is full.
var ErrUnusable = errors.New("choose another with --data")

// lockDir creates dir and locks it until release is called. The lock file names the process that holds the lock.
func lockDir(dir string) (release func(), err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("data directory %s is a file: %w", dir, ErrUnusable)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explainUnwritable(dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainUnwritable(dir, err)
	}
	if err := filelock.TryLock(f); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 256))
		f.Close()
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s, by %s: stop it, or choose another directory with --data",
			ErrInUse, dir, strings.TrimSpace(string(holder)))
	}
	err = f.Truncate(0)
	if err == nil {
		err = dirsync.MarkDataDir(dir)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "process %d since %s\n", os.Getpid(), time.Now().Format(time.DateTime))
	}
	if err != nil {
		f.Close()
		return nil, explainUnwritable(dir, err)
	}
	return func() { f.Close() }, nil
}

// explainUnwritable explains why the data directory cannot be written, and how to mend that.
func explainUnwritable(dir string, err error) error {
	const format = "data directory %s cannot be written: %w: %s%w"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("data directory %s cannot be written: %w: free space on its disk, "+
			"or choose another with --data", dir, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf(format, dir, err, "change its owner, or ", ErrUnusable)
	}
	return fmt.Errorf(format, dir, err, "", ErrUnusable)
}

// Running reports whether a fleet is using the data directory dir.
func Running(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(filelock.TryRLock(f), filelock.ErrLocked)
}
