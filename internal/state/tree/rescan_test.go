package tree

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestMountPointThatCannotBeOpened checks that a mount point is not taken for something else, and removed, when this
// process has no descriptor left.
func TestMountPointThatCannotBeOpened(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.Mkdir("servers", 0o755); err != nil {
		t.Fatal(err)
	}
	d := &Dir{root: root, opts: Options{MountPoints: []string{"servers", "client"}}}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	others, err := d.withoutMountPoints([]string{"servers"})
	if restoreErr := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); restoreErr != nil {
		t.Fatal(restoreErr)
	}
	if !errors.Is(err, syscall.EMFILE) || others != nil {
		t.Errorf("withoutMountPoints = %v, %v, want EMFILE", others, err)
	}
	if others, err = d.withoutMountPoints([]string{"servers", "client"}); err != nil || len(others) != 1 ||
		others[0] != "client" {
		t.Errorf("withoutMountPoints = %v, %v, want only client", others, err)
	}
}
