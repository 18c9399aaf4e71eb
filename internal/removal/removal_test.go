package removal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/removal"
)

// dig makes nested directories below dir, and a file in the deepest. Its path may be too long for a system call.
func dig(t *testing.T, dir string, depth int) {
	t.Helper()
	name := strings.Repeat("x", 20)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, name, 0o500)
		}
		if err != nil {
			t.Fatal(err)
		}
		parent := at
		at, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		err = errors.Join(err, unix.Fchmod(at, 0o700), unix.Close(parent))
	}
	file, fileErr := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0)
	if err := errors.Join(err, fileErr, unix.Fchmod(at, 0o500), unix.Close(at), unix.Close(file)); err != nil {
		t.Fatal(err)
	}
}

// TestAll removes trees that have more levels than this process may open descriptors.
func TestAll(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	outside := t.TempDir()
	for name, fill := range map[string]func(dir string) error{
		"nothing":   func(string) error { return nil },
		"a file":    func(dir string) error { return os.WriteFile(dir, nil, 0) },
		"a link":    func(dir string) error { return os.Symlink(outside, dir) },
		"a dir":     func(dir string) error { return os.Mkdir(dir, 0) },
		"deep dirs": func(dir string) error { err := os.Mkdir(dir, 0o700); dig(t, dir, 2000); return err },
		"many deep dirs": func(dir string) error {
			for _, name := range []string{"a", "b", ".removed-1", ".removed-2"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
					return err
				}
				dig(t, filepath.Join(dir, name), 301)
			}
			a := filepath.Join(dir, "a")
			return errors.Join(os.Symlink(outside, filepath.Join(a, "link")), os.Chmod(a, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			if err := fill(filepath.Join(parent, "x")); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(parent)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := removal.All(root, "x"); err != nil {
				t.Errorf("All() = %v, want nil", err)
			}
			if _, err := os.Lstat(filepath.Join(parent, "x")); !os.IsNotExist(err) {
				t.Errorf("Lstat() after All() = %v, want that it does not exist", err)
			}
			if _, err := os.Stat(outside); err != nil {
				t.Errorf("Stat() of a link's target = %v, want nil", err)
			}
		})
	}
}
