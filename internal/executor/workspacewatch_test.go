package executor

import (
	"os"
	"path/filepath"
	"strings"
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
	write(filepath.Join(dir, "d\xff/file\xff"), 1<<20)
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
	const blocks = 10 * 4096 // ., three directories, four files, two links
	if got, err := workspaceSize(t.Context(), dir, 1<<30); got != 2<<20+blocks || err != nil {
		t.Errorf("workspaceSize = %d, %v, want %d", got, err, 2<<20+blocks)
	}
	if got, err := workspaceSize(t.Context(), dir, 5000); got <= 5000 || got > 2<<20 || err != nil {
		t.Errorf("workspaceSize beyond its limit = %d, %v, want it to stop early", got, err)
	}
	if got, err := workspaceSize(t.Context(), filepath.Join(dir, "missing"), 1); got != 0 || err != nil {
		t.Errorf("workspaceSize of a missing directory = %d, %v, want 0", got, err)
	}
}

// TestWorkspaceThatCannotBeMeasured checks that a program cannot hide files from the check.
func TestWorkspaceThatCannotBeMeasured(t *testing.T) {
	deepest := "." + strings.Repeat("/d", maxWorkspaceDepth-1)
	for _, c := range []struct {
		name, dir string
		mode      os.FileMode
		want      string
	}{
		{"deep enough", deepest, 0o700, ""},
		{"too deep", deepest + "/d", 0o700, "directories are nested more than 256 deep"},
		{"cannot be listed", "d", 0o300, `a program has closed the directory "d"`},
		{"cannot be searched", "d", 0o600, `a program has closed the directory "d"`},
		{"is closed", ".", 0, "a program has closed the workspace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.mode != 0o700 && os.Geteuid() == 0 {
				t.Skip("root can read every directory")
			}
			ws := t.TempDir()
			dir := filepath.Join(ws, c.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(dir, 0o700)
			_, err := workspaceSize(t.Context(), ws, 1<<30)
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("workspaceSize = %v, want %q", err, c.want)
			}
		})
	}
}
