package hostdir

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInodesPerGroup reads from the superblock of a disk how many inodes ext4 searches at most to create a file.
func TestInodesPerGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	for _, mib := range []int64{64, 5120} {
		dir := t.TempDir()
		image := filepath.Join(dir, "disk.img")
		if err := NewDisk(t.Context(), image, filepath.Join(dir, "ws"), mib, 0, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { UnmountBelow(dir) })
		f, err := os.Open(image)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const superblock, inodesPerGroup = 1024, 0x28 // https://docs.kernel.org/filesystems/ext4/super.html
		var b [4]byte
		if _, err := f.ReadAt(b[:], superblock+inodesPerGroup); err != nil {
			t.Fatal(err)
		}
		if n := binary.LittleEndian.Uint32(b[:]); n == 0 || n > blocksPerGroup {
			t.Errorf("a disk of %d MiB has %d inodes per group, want 1 to %d", mib, n, blocksPerGroup)
		}
	}
}

// BenchmarkCreateAfterRemove fills a disk with 2,000 files and empties it 40 times, like a box whose tasks have
// different workspaces. It reports the kernel's time to create the files in the first and in the last rounds.
func BenchmarkCreateAfterRemove(b *testing.B) {
	const rounds, dirs, files, compared = 40, 100, 2000, 4
	runtime.LockOSThread() // for kernelTime
	defer runtime.UnlockOSThread()
	for b.Loop() {
		dir := b.TempDir()
		point := filepath.Join(dir, "ws")
		if err := NewDisk(b.Context(), filepath.Join(dir, "disk.img"), point, 5120, 0, 0); err != nil {
			b.Fatal(err)
		}
		var took []time.Duration
		for range rounds {
			start := kernelTime(b)
			for d := range dirs {
				if err := os.Mkdir(filepath.Join(point, strconv.Itoa(d)), 0o700); err != nil {
					b.Fatal(err)
				}
			}
			for i := range files {
				path := filepath.Join(point, strconv.Itoa(i%dirs), strconv.Itoa(i))
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			took = append(took, kernelTime(b)-start)
			for d := range dirs {
				if err := os.RemoveAll(filepath.Join(point, strconv.Itoa(d))); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := UnmountBelow(dir); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(slices.Min(took[:compared]).Microseconds())/1e3, "first-ms")
		b.ReportMetric(float64(slices.Min(took[rounds-compared:]).Microseconds())/1e3, "last-ms")
	}
}

// kernelTime returns the time that the kernel has worked for this thread.
func kernelTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Stime.Nano())
}
