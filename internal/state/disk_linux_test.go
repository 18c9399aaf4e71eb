package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	bucket := mem.New()
	a := statetest.OpenWorker(t, bucket)
	a.Checkout()
	for i := range 8 {
		a.Write(strconv.Itoa(i), statetest.Random(byte(i), 1<<20))
	}
	a.Commit("task-1")
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	s := state.New(bucket, state.Options{CacheDir: filepath.Join(small, "cache")})
	dir := filepath.Join(small, "tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := s.Tree(dir, ref)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := s.Checkout(t.Context(), tree, nil); !errors.Is(err, state.ErrDiskFull) {
		t.Errorf("Checkout() onto a full disk = %v, want %v", err, state.ErrDiskFull)
	}
	b := statetest.OpenWorker(t, bucket)
	b.Checkout()
	for i := range 7 {
		b.Remove(strconv.Itoa(i))
	}
	b.Commit("task-2")
	if _, err := s.Checkout(t.Context(), tree, nil); err != nil {
		t.Errorf("Checkout() of a version that fits = %v, want nil", err)
	}
}
