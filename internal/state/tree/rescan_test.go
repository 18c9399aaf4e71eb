package tree

import (
	"errors"
	"fmt"
	"os"
	"strings"
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

// TestGrownDirectory checks that a directory is known to have grown, also after its names have been removed.
func TestGrownDirectory(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d := &Dir{root: root, nodes: map[string]*node{}, layout: map[string]*node{}}
	check := func(when string, want bool) {
		t.Helper()
		if err := d.rescan(); err != nil || d.Grown() != want {
			t.Errorf("%s: Grown = %v after %v, want %v", when, d.Grown(), err, want)
		}
	}
	if err := errors.Join(root.Mkdir("a", 0o755), root.WriteFile("a/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	check("a new directory", false)
	name := func(i int) string { return fmt.Sprintf("a/%d%s", i, strings.Repeat("x", 240)) }
	for i := range 6000 {
		if err := root.Link("a/file", name(i)); err != nil {
			t.Fatal(err)
		}
	}
	check("6,000 long names", false)
	for i := range 6000 {
		if err := root.Remove(name(i)); err != nil {
			t.Fatal(err)
		}
		delete(d.nodes, name(i)) // as Materialise does
	}
	if info, err := root.Stat("a"); err != nil || info.Size() <= largeDirectory {
		t.Skipf("this file system makes directories smaller: %d bytes, %v", info.Size(), err)
	}
	if !d.Grown() {
		t.Error("Grown = false after the names were removed, want true")
	}
	check("without the names", true)
}
