package worker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/worker"
)

// TestDirWithoutLinks checks that Dir.Path has no symbolic links, because the sandbox's engine does not follow them.
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
