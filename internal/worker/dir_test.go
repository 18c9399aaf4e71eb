package worker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/worker"
)

// The engine does not follow symbolic links in the paths that it gets.
func TestDirWithoutLinks(t *testing.T) {
	target, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Symlink(target, data); err != nil {
		t.Fatal(err)
	}
	d, err := worker.OpenDir(data)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if want := filepath.Join(target, "w0"); d.Path() != want {
		t.Errorf("OpenDir of a link = %s, want %s", d.Path(), want)
	}
}
