package executor

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
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
	if got, _, err := workspaceSize(t.Context(), dir, 1<<30); got != 2<<20+blocks || err != nil {
		t.Errorf("workspaceSize = %d, %v, want %d", got, err, 2<<20+blocks)
	}
	if got, _, err := workspaceSize(t.Context(), dir, 5000); got <= 5000 || got > 2<<20 || err != nil {
		t.Errorf("workspaceSize beyond its limit = %d, %v, want it to stop early", got, err)
	}
	if got, _, err := workspaceSize(t.Context(), filepath.Join(dir, "missing"), 1); got != 0 || err != nil {
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
		{"cannot be listed", "d", 0o300, `a program has made the directory "d" unreadable`},
		{"cannot be searched", "d", 0o600, `a program has made the directory "d" unreadable`},
		{"is unreadable", ".", 0, "a program has made the workspace unreadable"},
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
			_, _, err := workspaceSize(t.Context(), ws, 1<<30)
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("workspaceSize = %v, want %q", err, c.want)
			}
		})
	}
}

// TestWorkspaceThatCannotBeRead checks that a check that runs out of descriptors does not miss what it cannot open.
func TestWorkspaceThatCannotBeRead(t *testing.T) {
	ws := t.TempDir()
	if err := os.MkdirAll(filepath.Join(ws, "a/b/c/d"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(ws)
	if err != nil {
		t.Fatal(err)
	}
	free := uint64(f.Fd())
	f.Close()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	for more := range uint64(5) {
		low := syscall.Rlimit{Cur: free + more, Max: old.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		if _, _, err := workspaceSize(t.Context(), ws, 1<<30); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("workspaceSize with %d descriptors = %v, want EMFILE", more, err)
		}
	}
}

// renaming is a context that renames a directory each time a check asks whether the context has ended, which it does
// before it opens a directory that it has listed.
type renaming struct {
	context.Context
	dir            string
	renamed, limit int
}

func (r *renaming) Err() error {
	if r.renamed < r.limit {
		r.renamed++
		next := filepath.Join(filepath.Dir(r.dir), "dir"+strconv.Itoa(r.renamed))
		if err := os.Rename(r.dir, next); err != nil {
			return err
		}
		r.dir = next
	}
	return r.Context.Err()
}

// TestWorkspaceThatIsRenamed checks that a program cannot hide a directory by renaming it again and again.
func TestWorkspaceThatIsRenamed(t *testing.T) {
	setup := func(t *testing.T, renames int) (ws string, ctx *renaming) {
		t.Helper()
		ws = t.TempDir()
		dir := filepath.Join(ws, "dir")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(ws, "other"), 0o700),
			os.WriteFile(filepath.Join(dir, "file"), make([]byte, 3<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
		return ws, &renaming{Context: t.Context(), dir: dir, limit: renames}
	}
	for renames := range maxListings {
		ws, ctx := setup(t, renames)
		const want = 3<<20 + 4*4096 // three directories and a file
		if got, complete, err := workspaceSize(ctx, ws, 1<<30); got != want || !complete || err != nil {
			t.Errorf("workspaceSize with %d renames = %d, %v, %v, want %d, true", renames, got, complete, err, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ws, ctx := setup(t, math.MaxInt)
		const want = "the size of the workspace cannot be measured, and its limit is 1 MiB: " +
			"a program keeps renaming directories"
		if got := watchWorkspace(ctx, ws, 1); got != want {
			t.Errorf("watchWorkspace = %q, want %q", got, want)
		}
	})
}
