package hostdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/filelock"
)

func TestLockIsExclusiveUntilReleased(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "owner")
	first, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(dir); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("second Acquire = %v, want ErrLocked", err)
	}
	first.Release()
	second, err := Acquire(dir)
	if err != nil {
		t.Fatalf("Acquire after Release = %v", err)
	}
	second.Release()
}

func TestParseMounts(t *testing.T) {
	info := "21 1 8:1 / / rw - ext4 /dev/vda rw\n" +
		"40 21 7:0 / /data/my\\040box/ws rw,nosuid shared:3 - ext4 /dev/loop0 rw\n" +
		"41 40 0:9 / /data/back\\134slash rw - tmpfs tmpfs rw\nshort line\n"
	want := []string{"/", "/data/my box/ws", `/data/back\slash`}
	if diff := cmp.Diff(want, parseMounts(info)); diff != "" {
		t.Errorf("parseMounts (-want +got):\n%s", diff)
	}
}

func FuzzUnescape(f *testing.F) {
	f.Add(`/a\040b\`)
	f.Fuzz(func(t *testing.T, s string) {
		if got := unescape(s); len(got) > len(s) {
			t.Errorf("unescape(%q) = %q, longer than its argument", s, got)
		}
	})
}

func TestBelow(t *testing.T) {
	for path, want := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false} {
		if got := Below(path, "/a/b"); got != want {
			t.Errorf("Below(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestDiskHoldsItsSizeAndLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	image, point := filepath.Join(dir, "disk.img"), filepath.Join(dir, "ws")
	if err := NewDisk(t.Context(), image, point, 16, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { UnmountBelow(dir) })
	if entries, err := os.ReadDir(point); err != nil || len(entries) != 0 {
		t.Errorf("new disk contains %v, %v, want nothing", entries, err)
	}
	info, err := os.Stat(point)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("owner of the new disk = %+v, %v, want 65534", info, err)
	}
	if err := os.WriteFile(filepath.Join(point, "fits"), make([]byte, 8<<20), 0o600); err != nil {
		t.Errorf("write 8 MiB to a 16 MiB disk = %v, want nil", err)
	}
	err = os.WriteFile(filepath.Join(point, "too big"), make([]byte, 16<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write 24 MiB to a 16 MiB disk = %v, want ENOSPC", err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if points, err := Mounts(dir); err != nil || len(points) != 0 {
		t.Errorf("Mounts after Remove = %v, %v, want none", points, err)
	}
	used, err := Disks()
	if used = slices.DeleteFunc(used, func(d Disk) bool { return d.Image != image }); err != nil || len(used) > 0 {
		t.Errorf("loop devices after Remove = %+v, %v, want none", used, err)
	}
}

func TestDiskHasRoomForManySmallFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	point := filepath.Join(dir, "ws")
	if err := NewDisk(t.Context(), filepath.Join(dir, "disk.img"), point, 1024, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { UnmountBelow(dir) })
	var st syscall.Statfs_t
	if err := syscall.Statfs(point, &st); err != nil || st.Ffree < 200_000 || st.Ffree < st.Bfree {
		t.Errorf("a disk of 1 GiB has %d inodes and %d blocks, %v; want at least 200,000 inodes and one per block",
			st.Ffree, st.Bfree, err)
	}
}

func TestDiskThatCannotBeFormatted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "disk.img")
	if err := NewDisk(t.Context(), image, filepath.Join(dir, "ws"), 0, 0, 0); err == nil {
		t.Error("NewDisk of 0 MiB = nil, want an error")
	}
	if points, _ := Mounts(dir); len(points) != 0 {
		t.Errorf("Mounts = %v, want none", points)
	}
}

// TestResolveEnds checks that the resolution of a path ends with its context, and refuses paths that are too deep.
func TestResolveEnds(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	deep := strings.Repeat("d/", MaxDepth-1) + "d"
	if got, err := Resolve(t.Context(), root, deep); got != deep || err != nil {
		t.Errorf("Resolve = %q, %v, want the path itself", got, err)
	}
	if _, err := Resolve(t.Context(), root, deep+"/d"); err == nil ||
		!strings.HasSuffix(err.Error(), "the path has more than 256 components, counting those of its links") {
		t.Errorf("Resolve of a path that is too deep = %v, want an error", err)
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := Resolve(ctx, root, deep); !errors.Is(err, stopped) {
		t.Errorf("Resolve = %v, want %v", err, stopped)
	}
}
