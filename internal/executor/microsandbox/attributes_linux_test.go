package microsandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The removal reaches every file, below more directories than a path can name, and no file elsewhere.
func TestRemoveAttribute(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if !supportsUserAttributes(dir) {
		t.Skip("no user attributes in " + dir)
	}
	const name = "user.codefleet"
	var marked []*os.File
	mark := func(f *os.File, err error) *os.File {
		t.Helper()
		if err == nil {
			err = unix.Fsetxattr(int(f.Fd()), name, []byte("1"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		marked = append(marked, f)
		return f
	}
	isMarked := func(f *os.File) bool {
		_, err := unix.Fgetxattr(int(f.Fd()), name, nil)
		return err == nil
	}
	spared := mark(os.Create(outside))
	at, err := os.OpenRoot(dir)
	for i := 0; i < 300 && err == nil; i++ {
		mark(at.Open("."))
		mark(at.Create("file"))
		err = at.Symlink(outside, "link")
		for _, below := range []string{strings.Repeat("next", 10), "a", "z"} {
			if err == nil {
				err = at.Mkdir(below, 0o755)
			}
		}
		if err == nil {
			last := at
			at, err = last.OpenRoot(strings.Repeat("next", 10))
			last.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	at.Close()
	if err := removeAttribute(dir, name); err != nil {
		t.Fatalf("removeAttribute = %v, want nil", err)
	}
	for i, f := range marked {
		if want := f == spared; isMarked(f) != want {
			t.Errorf("file %d, %s, has the attribute: %v, want %v", i, f.Name(), !want, want)
		}
	}
	if err := removeAttribute(filepath.Join(dir, "missing"), name); !os.IsNotExist(err) {
		t.Errorf("removeAttribute of a missing directory = %v, want that it does not exist", err)
	}
}
