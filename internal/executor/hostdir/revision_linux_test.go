package hostdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRevision checks that every kind of change to a disk changes its revision, and that reading does not.
func TestRevision(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	point := filepath.Join(dir, "ws")
	if err := NewDisk(t.Context(), filepath.Join(dir, "disk.img"), point, 512, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { UnmountBelow(dir) })
	at := func(name string) string { return filepath.Join(point, name) }
	for _, name := range []string{"file", "moved", "removed", "mapped", "big"} {
		if err := os.WriteFile(at(name), make([]byte, 8192), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	mapped, err := os.OpenFile(at("mapped"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	memory, err := unix.Mmap(int(mapped.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	old := time.Unix(1, 0)
	overwrite := func(name string) error {
		f, err := os.OpenFile(at(name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte{1}, 4100); err != nil {
			return err
		}
		return f.Close()
	}
	stable := func() Revision {
		var last Revision
		for range 10 {
			r, err := ReadRevision(point, last)
			if err != nil {
				t.Fatal(err)
			}
			if r.SameAs(last) {
				return r
			}
			last = r
		}
		t.Fatal("the revision changes although nothing is written")
		return last
	}
	for _, c := range []struct {
		name    string
		change  func() error
		changes bool
	}{
		{"nothing", func() error { return nil }, false},
		{"read a file", func() error { _, err := os.ReadFile(at("file")); return err }, false},
		{"list a directory", func() error { _, err := os.ReadDir(point); return err }, false},
		{"overwrite a byte", func() error { return overwrite("file") }, true},
		{"overwrite it with the same byte", func() error { return overwrite("file") }, true},
		{"write to mapped memory", func() error { memory[0]++; return nil }, true},
		{"write to mapped memory again", func() error { memory[0]++; return nil }, true},
		{"change the mode", func() error { return os.Chmod(at("file"), 0o644) }, true},
		{"change the times", func() error { return os.Chtimes(at("file"), old, old) }, true},
		{"change the owner", func() error { return os.Chown(at("file"), 1, 1) }, true},
		{"rename", func() error { return os.Rename(at("moved"), at("other")) }, true},
		{"remove", func() error { return os.Remove(at("removed")) }, true},
		{"make an empty file", func() error { return os.WriteFile(at("empty"), nil, 0o600) }, true},
		{"make a symbolic link", func() error { return os.Symlink("x", at("symlink")) }, true},
		{"make a hard link", func() error { return os.Link(at("file"), at("hard")) }, true},
		{"make a directory", func() error { return os.Mkdir(at("dir/dir"), 0o700) }, true},
		{"set an attribute", func() error { return unix.Setxattr(at("file"), "user.a", []byte("b"), 0) }, true},
		{"truncate", func() error { return os.Truncate(at("big"), 10) }, true},
		{"make and remove", func() error {
			if err := os.WriteFile(at("short"), nil, 0o600); err != nil {
				return err
			}
			return os.Remove(at("short"))
		}, true},
	} {
		before := stable()
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		after, err := ReadRevision(point, before)
		if err != nil {
			t.Fatal(err)
		}
		if same := after.SameAs(before); same == c.changes {
			t.Errorf("%s: the revision is the same: %v, want %v (%+v, %+v)", c.name, same, !c.changes, before, after)
		}
	}
}
