package assembly_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/sandbox"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// TestRemains checks that Remains finds and removes what a killed worker has left: a disk, groups, a process and
// directories, even if some of its files were deleted. It touches nothing of a worker that holds a lock.
func TestRemains(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) (release func())
		remove  bool
		want    bool // whether the remains are removed
	}{
		"killed":                                 {killed, true, true},
		"killed, only reported":                  {killed, false, false},
		"killed, and lock files deleted":         {deleting("lock", "g/f/lock", "boxes/f/lock"), true, true},
		"killed, and gvisor's directory deleted": {deleting("lock", "g", "boxes/f/ws/f-1-1/disk"), true, true},
		"alive":                                  {holding("."), true, false},
		"alive, by the lock of the driver":       {holding("g/f"), true, false},
		"alive, by the lock of the pool":         {holding("boxes/f"), true, false},
		"alive, and its lock file deleted":       {holdingDeleted("boxes/f"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "w0")
			makeRemains(t, dir)
			release := c.prepare(t, dir)
			found, err := assembly.Remains(t.Context(), config.Default(), c.remove)
			if err != nil {
				t.Errorf("Remains() = %v, want nil", err)
			}
			i := slices.IndexFunc(found, func(r sandbox.Remains) bool { return r.Dir == dir })
			if alive := strings.HasPrefix(name, "alive"); alive != (i < 0) {
				t.Fatalf("Remains() = %+v, want %s among them: %v", found, dir, !alive)
			}
			if i >= 0 && (len(found[i].Mounts) != 1 || len(found[i].Disks) != 1 || len(found[i].Groups) == 0 ||
				found[i].Processes != 1) {
				t.Errorf("Remains() = %+v, want one mount, one disk, one process, and groups", found[i])
			}
			left, err := sandbox.FindRemains(dir, filepath.Join(dir, "g"), []string{"f"})
			if err != nil {
				t.Fatal(err)
			}
			removed := len(left.Mounts)+len(left.Disks)+len(left.Groups)+left.Processes == 0
			_, boxes := os.Stat(filepath.Join(dir, "boxes"))
			if removed != c.want || os.IsNotExist(boxes) != c.want {
				t.Errorf("left: %+v, directory of boxes: %v; want removed %v", left, boxes, c.want)
			}
			release()
			if _, err := assembly.Remains(t.Context(), config.Default(), true); err != nil { // for the next test
				t.Errorf("Remains() = %v, want nil", err)
			}
		})
	}
}

// makeRemains makes what a worker has in its directory: locked directories, a box with a disk, a process and groups.
func makeRemains(t *testing.T, dir string) {
	t.Helper()
	for _, owner := range []string{".", "g/f", "boxes/f"} {
		lock, err := hostdir.Acquire(filepath.Join(dir, owner))
		if err != nil {
			t.Fatal(err)
		}
		lock.Release()
	}
	box := filepath.Join(dir, "boxes", "f", "ws", "f-1-1")
	state := filepath.Join(dir, "g", "f", "b", "w0")
	group := filepath.Join("codefleet", "f-"+hostdir.PathHash(filepath.Join(dir, "g", "f")), "w0")
	groups := filepath.Join("/sys/fs/cgroup", group) // version 2
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		groups = filepath.Join("/sys/fs/cgroup/memory", group)
	}
	for _, d := range []string{box, state, groups} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	workspace := filepath.Join(box, "workspace")
	if err := hostdir.NewDisk(t.Context(), filepath.Join(box, "disk"), workspace, 8, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hostdir.UnmountBelow(dir) })
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read line",
		"--root="+state, "--shared-root="+filepath.Join(dir, "g", "f", "shared"))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() }) // killed, or ended by the closed pipe
}

func killed(*testing.T, string) func() { return func() {} }

func deleting(names ...string) func(*testing.T, string) func() {
	return func(t *testing.T, dir string) func() {
		t.Helper()
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return func() {}
	}
}

func holding(name string) func(*testing.T, string) func() {
	return func(t *testing.T, dir string) func() {
		t.Helper()
		lock, err := hostdir.Acquire(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return lock.Release
	}
}

func holdingDeleted(name string) func(*testing.T, string) func() {
	return func(t *testing.T, dir string) func() {
		t.Helper()
		release := holding(name)(t, dir)
		if err := os.Remove(filepath.Join(dir, name, "lock")); err != nil {
			t.Fatal(err)
		}
		return release
	}
}
