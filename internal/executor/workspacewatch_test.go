package executor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWorkspaceSize(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(path string, bytes int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, bytes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "large"), 8<<20)
	write(filepath.Join(dir, "a/b/file"), 1<<20)
	write(filepath.Join(dir, "empty"), 0)
	for _, link := range []string{"dir", "a/file"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	const blocks = 8 * 4096 // ., a, a/b, three files, two links
	if got, want := workspaceSize(t.Context(), dir, 1<<30), int64(1<<20+blocks); got != want {
		t.Errorf("workspaceSize = %d, want %d", got, want)
	}
	if got := workspaceSize(t.Context(), dir, 5000); got <= 5000 || got > 1<<20 {
		t.Errorf("workspaceSize beyond its limit = %d, want it to stop early", got)
	}
	if got := workspaceSize(t.Context(), filepath.Join(dir, "missing"), 1); got != 0 {
		t.Errorf("workspaceSize of a missing directory = %d, want 0", got)
	}
}
