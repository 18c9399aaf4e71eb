package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestParentsCount checks that each directory that an entry of an archive needs counts as a file, if it is new: the
// names of few entries could make millions of directories.
func TestParentsCount(t *testing.T) {
	for _, c := range []struct {
		names []string
		limit int
		want  error
	}{
		{[]string{"a/b/c/f", "a/b/c/g"}, 5, nil},
		{[]string{"a/b/c/f", "a/b/c/g"}, 4, ErrTooLarge},
		{[]string{strings.Repeat("d/", 200) + "f"}, 200, ErrTooLarge},
		{[]string{strings.Repeat("d/", 200) + "f"}, 201, nil},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, name := range c.names {
			if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		u := unpacker{root: root, maxMB: 1, filesLeft: c.limit, written: map[string]bool{}}
		if err := u.applyArchive(t.Context(), tar.NewReader(&archive)); !errors.Is(err, c.want) {
			t.Errorf("applyArchive of %.40q with at most %d files = %v, want %v", c.names, c.limit, err, c.want)
		}
	}
}
