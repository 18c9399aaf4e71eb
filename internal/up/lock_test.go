package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if Running(dir) {
		t.Error("Running before anything is there")
	}
	release, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Running(dir) {
		t.Error("not Running while locked")
	}
	_, err = lockDir(dir)
	if who := fmt.Sprintf("process %d since ", os.Getpid()); !errors.Is(err, ErrInUse) ||
		!strings.Contains(err.Error(), who) {
		t.Errorf("second lock: %v, want ErrInUse by %q", err, who)
	}
	release()
	if Running(dir) {
		t.Error("Running after the release")
	}
	again, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again()
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(filepath.Join(file, "data")); err == nil ||
		!strings.Contains(err.Error(), "cannot be written") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("lockDir below a file: %v", err)
	}
}
