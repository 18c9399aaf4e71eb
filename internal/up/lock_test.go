package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if Running(dir) {
		t.Error("Running = true before the directory exists")
	}
	release, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Running(dir) {
		t.Error("Running = false while the directory is locked")
	}
	_, err = lockDir(dir)
	if holder := fmt.Sprintf("process %d since ", os.Getpid()); !errors.Is(err, ErrInUse) ||
		!strings.Contains(err.Error(), holder) {
		t.Errorf("second lockDir = %v, want ErrInUse and %q", err, holder)
	}
	release()
	if Running(dir) {
		t.Error("Running = true after the release")
	}
	release, err = lockDir(dir)
	if err != nil {
		t.Fatalf("lockDir after the release = %v, want nil", err)
	}
	release()
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		file: "is a file: choose another with --data", filepath.Join(file, "data"): "cannot be written",
	} {
		if _, err := lockDir(dir); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--data") {
			t.Errorf("lockDir(%s) = %v, want an error with %q and --data", dir, err, want)
		}
	}
}

// TestUnwritableAdvice checks that the error says what helps against its cause.
func TestUnwritableAdvice(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.ENOSPC: ": free space on its disk, or choose another with --data",
		syscall.EACCES: ": change its owner, or choose another with --data",
		syscall.EROFS:  "read-only file system: choose another with --data",
	} {
		err := explainUnwritable("/data", &fs.PathError{Op: "open", Path: "/data/lock", Err: cause})
		if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("explainUnwritable(%v) = %q, want the end %q", cause, err, want)
		}
	}
}
