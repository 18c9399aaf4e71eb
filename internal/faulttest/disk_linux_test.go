package faulttest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/statetest"
	"github.com/codefleet/codefleet/schemas"
)

// reading is a program that adds up the sizes of its workspace's files, and writes the sum to a file.
const reading = `
import os
total = 0
for name in os.listdir("."):
    if name.startswith("file-"):
        with open(name, "rb") as f:
            total += len(f.read())
with open("seen-" + inputs["name"], "w") as f:
    f.write(str(total))
result = total
`

// A worker with a small disk completes tasks that do not fit with disk_full, evicts its cache if a task needs the
// space, and runs the next task.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	for name, diskMB := range map[string]string{"directories": "-1", "disks of boxes": "64"} {
		t.Run(name, func(t *testing.T) { testDiskFull(t, diskMB) })
	}
}

func testDiskFull(t *testing.T, diskMB string) {
	f := newFleet(t)
	dir := filepath.Join(f.dir, "w0")
	smallDisk(t, dir, 24)
	sizes := map[string]int{"small": 0, "eight": 8, "fits": 15, "large": 30} // MiB
	for workspace, mib := range sizes {
		f.fill(t, state.Ref{Tenant: "acme", Workspace: workspace}, mib)
	}
	f.work(t, 1, "DISK_MB="+diskMB)
	for i, workspace := range []string{"small", "eight", "fits", "large", "small", "fits"} {
		task := newTask(state.Ref{Tenant: "acme", Workspace: workspace}, i)
		f.submitTimes(t, task, reading, 0, 2)
		rec := f.wait(t, task)
		if workspace != "large" {
			if got := string(rec.Result.Result); rec.Status != schemas.Succeeded ||
				got != strconv.Itoa(sizes[workspace]<<20) {
				t.Errorf("task %d on %s = %s, %+v, read %s bytes; want %d MiB", i, workspace, rec.Status,
					rec.Result.Error, got, sizes[workspace])
			}
			continue
		}
		e := rec.Result.Error
		if rec.Status != schemas.Dead || rec.Run != 2 || e == nil || e.Code != "disk_full" ||
			!strings.Contains(e.Hint, "free space on the disk") {
			t.Errorf("task %d on %s = %s after run %d, %+v; want dead after run 2, disk_full and a hint",
				i, workspace, rec.Status, rec.Run, e)
		}
		if left := sizeOf(t, filepath.Join(dir, "cache")); left > 0 {
			t.Errorf("the cache is %d bytes although the disk is full, want 0", left)
		}
	}
}

// smallDisk mounts a file system of the given size in MiB. It is unmounted after the worker has stopped.
func smallDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=711", mib)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

func sizeOf(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // the worker has removed it
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// fill commits mib incompressible files of 1 MiB.
func (f *fleet) fill(t *testing.T, ref state.Ref, mib int) {
	t.Helper()
	w := statetest.NewWorker(t, f.bucket, ref, state.Options{})
	w.Checkout()
	for i := range mib {
		w.Write(fmt.Sprint("file-", i), statetest.Random(byte(i), 1<<20))
	}
	w.Commit("fill-" + strings.ToLower(ref.Workspace))
}
