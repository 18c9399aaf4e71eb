package hostdir

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCreatingFilesDoesNotSlowDown fills a disk with files and empties it again and again, like a box whose tasks have
// different workspaces.
func TestCreatingFilesDoesNotSlowDown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	point := filepath.Join(dir, "ws")
	if err := NewDisk(t.Context(), filepath.Join(dir, "disk.img"), point, 5120, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { UnmountBelow(dir) })
	runtime.LockOSThread() // for kernelTime
	defer runtime.UnlockOSThread()
	const rounds, dirs, files, compared = 40, 100, 2000, 4
	var took []time.Duration
	for range rounds {
		start := kernelTime(t)
		for d := range dirs {
			if err := os.Mkdir(filepath.Join(point, strconv.Itoa(d)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for i := range files {
			path := filepath.Join(point, strconv.Itoa(i%dirs), strconv.Itoa(i))
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		took = append(took, kernelTime(t)-start)
		for i := range files {
			if err := os.Remove(filepath.Join(point, strconv.Itoa(i%dirs), strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		for d := range dirs {
			if err := os.Remove(filepath.Join(point, strconv.Itoa(d))); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, last := slices.Min(took[:compared]), slices.Min(took[rounds-compared:])
	if last > 5*first {
		t.Errorf("creating %d files took %v of the kernel's time in the last rounds, %v in the first; "+
			"want at most 5 times as much", files, last, first)
	}
}

// kernelTime returns the time that the kernel has worked for this thread.
func kernelTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Stime.Nano())
}
