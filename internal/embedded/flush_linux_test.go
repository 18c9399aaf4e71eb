package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNamesAreFlushedOnce checks that the directories above an object are flushed when they are new, also if they
// were removed and made again, and that otherwise only the directory of the object is.
func TestNamesAreFlushedOnce(t *testing.T) {
	root := t.TempDir()
	f, err := openFlusher(root, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var flushed []string
	f.sync = func(file *os.File) error {
		flushed = append(flushed, strings.TrimPrefix(file.Name(), root))
		return file.Sync()
	}
	write := func(object string) {
		t.Helper()
		path := filepath.Join(root, object)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		flushed = nil
		if err := f.Sync("/" + object); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		object string
		want   []string
	}{
		{"b/acme/w/HEAD", []string{"/b/acme/w/HEAD", "/b/acme/w", "/b/acme", "/b", "/."}},
		{"b/acme/w/HEAD", []string{"/b/acme/w/HEAD", "/b/acme/w"}},
		{"b/acme/p/x", []string{"/b/acme/p/x", "/b/acme/p", "/b/acme"}},
	} {
		write(step.object)
		if !slices.Equal(flushed, step.want) {
			t.Errorf("Sync(%s) flushes %q, want %q", step.object, flushed, step.want)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "b/acme")); err != nil {
		t.Fatal(err)
	}
	write("b/acme/w/HEAD")
	if want := []string{"/b/acme/w/HEAD", "/b/acme/w", "/b/acme", "/b"}; !slices.Equal(flushed, want) {
		t.Errorf("Sync after the directories were created again flushes %q, want %q", flushed, want)
	}
}
