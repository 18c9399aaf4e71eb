package state_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/ignore"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestNoEscape checks that symbolic links in a tree are not followed where a version has directories and files.
func TestNoEscape(t *testing.T) {
	bucket := mem.New()
	a := statetest.OpenWorker(t, bucket)
	a.Checkout()
	a.Write("dir/sub/file", "new")
	a.Write("file", "new")
	a.Commit("task-1")

	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("victim"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := statetest.OpenWorker(t, bucket)
	for link, target := range map[string]string{
		"dir": outside, "file": filepath.Join(outside, "file"), ignore.FileName: filepath.Join(outside, "file"),
	} {
		if err := os.Symlink(target, filepath.Join(b.Dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Tree.ReadFile("dir/file", 10); err == nil {
		t.Error("ReadFile() through a link out of the tree succeeded")
	}
	if err := b.Tree.WriteFile("dir/planted", nil, 0o644); err == nil {
		t.Error("WriteFile() through a link out of the tree succeeded")
	}
	b.Checkout()
	b.Want(a.Files())
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v, want it untouched", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "file")); string(data) != "victim" {
		t.Errorf("file outside = %q, %v, want it untouched", data, err)
	}
}

// TestHardLinks checks that a checkout does not write through hard links between files.
func TestHardLinks(t *testing.T) {
	bucket := mem.New()
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	a.Checkout()
	a.Write("x", "1")
	if err := os.Link(filepath.Join(a.Dir, "x"), filepath.Join(a.Dir, "y")); err != nil {
		t.Fatal(err)
	}
	a.Commit("task-1")
	b.Checkout()
	b.Want(map[string]string{"x": "1", "y": "1"})
	b.Write("x", "2")
	b.Commit("task-2")
	a.Checkout()
	a.Want(map[string]string{"x": "2", "y": "1"})
}

func TestSpecialFiles(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	w.Write("file", "1")
	if err := syscall.Mkfifo(filepath.Join(w.Dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(w.Dir, "file"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	c := w.Commit("task-1")
	if got := strings.Join(c.Changed, " "); got != "file" {
		t.Errorf("Commit() changed %q, want the file only", got)
	}
	other := statetest.OpenWorker(t, bucket)
	if err := syscall.Mkfifo(filepath.Join(other.Dir, "file"), 0o644); err != nil {
		t.Fatal(err)
	}
	other.Checkout()
	other.Want(map[string]string{"file": "755 1"})
	info, err := os.Stat(filepath.Join(other.Dir, "file"))
	if err != nil || info.Mode()&os.ModeSetuid != 0 {
		t.Errorf("mode = %v, %v, want no setuid bit", info.Mode(), err)
	}
}

func TestIgnoreFile(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	w.Write(ignore.FileName, "# comment\n*.log\n/build/\ndata/raw\n[broken\n")
	for _, path := range []string{
		"a.log", "deep/b.log", "build/x", "deep/build/x", "data/raw/x", "data/clean",
		"__pycache__/m.pyc", "node_modules/p/x",
	} {
		w.Write(path, "x")
	}
	w.Commit("task-1")
	other := statetest.OpenWorker(t, bucket)
	other.Checkout()
	got := other.Files()
	for path, want := range map[string]bool{
		"a.log": false, "deep/b.log": false, "build": false, "deep/build/x": true, "data/raw": false,
		"data/clean":  true,
		"__pycache__": false, "node_modules": false, ignore.FileName: true,
	} {
		if (got[path] != "") != want {
			t.Errorf("%s committed: %v, want %v", path, !want, want)
		}
	}
}

func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the owner of files")
	}
	bucket := mem.New()
	a := statetest.OpenWorker(t, bucket)
	a.Checkout()
	a.Write("dir/file", "1")
	if err := os.Symlink("file", filepath.Join(a.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	a.Commit("task-1")
	b := statetest.NewWorker(t, bucket, ref, state.Options{Owner: &state.Owner{UID: 65534, GID: 65534}})
	b.Write("dir/file", "1") // right content, wrong owner
	b.Checkout()
	if err := b.Tree.WriteFile("given/file", []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"dir", "dir/file", "link", "given", "given/file"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(b.Dir, path), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != 65534 || st.Gid != 65534 {
			t.Errorf("%s belongs to %d:%d, want 65534:65534", path, st.Uid, st.Gid)
		}
	}
}

// TestSetBackTimes checks that a change is found even if the program sets the modification time back.
func TestSetBackTimes(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	w.Write("file", "old")
	w.Commit("task-1")
	w.Checkout()
	path := filepath.Join(w.Dir, "file")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Write("file", "new")
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if c := w.Commit("task-2"); c.NoChange {
		t.Error("Commit() = no change, want a change with the same size and modification time")
	}
}

func TestRefs(t *testing.T) {
	s := state.New(mem.New(), state.Options{})
	for _, name := range []string{"", "..", "a/b", "a\x00", "_A", "-a", "ä", strings.Repeat("a", 64)} {
		for _, bad := range []state.Ref{{Tenant: name, Workspace: "main"}, {Tenant: "acme", Workspace: name}} {
			if _, err := s.Tree(t.TempDir(), bad); err == nil {
				t.Errorf("Tree(%q) succeeded", bad)
			}
		}
	}
}

// TestExactTree checks that the next checkout makes a tree that a program has changed equal to another worker's tree:
// nothing that is not part of the version is left.
func TestExactTree(t *testing.T) {
	for name, leave := range map[string]func(dir string) error{
		"hard links": func(dir string) error {
			return errors.Join(
				os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "other")),
				os.Link(filepath.Join(dir, "link"), filepath.Join(dir, "dir", "link")),
			)
		},
		"a hard link to an excluded name": func(dir string) error {
			return os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "servers"))
		},
		"mode bits": func(dir string) error {
			return errors.Join(
				os.Chmod(filepath.Join(dir, "file"), 0o755|os.ModeSetuid|os.ModeSetgid),
				os.Chmod(filepath.Join(dir, "dir"), 0o755|os.ModeSetgid|os.ModeSticky),
			)
		},
	} {
		for _, then := range []string{"commit", "revert"} {
			t.Run(name+", "+then, func(t *testing.T) {
				bucket := mem.New()
				w := statetest.OpenWorker(t, bucket)
				w.Checkout()
				w.Write("file", "1")
				w.Write("dir/file", "1")
				if err := os.Symlink("file", filepath.Join(w.Dir, "link")); err != nil {
					t.Fatal(err)
				}
				w.Commit("task-1")
				w.Checkout()
				if err := leave(w.Dir); err != nil {
					t.Fatal(err)
				}
				if then == "commit" {
					w.Commit("task-2")
				} else if err := w.Store.Revert(t.Context(), w.Tree); err != nil {
					t.Fatal(err)
				}
				w.Checkout()
				other := statetest.OpenWorker(t, bucket)
				other.Checkout()
				if diff := cmp.Diff(exactly(t, other.Dir), exactly(t, w.Dir)); diff != "" {
					t.Errorf("the tree differs (-of another worker +used):\n%s", diff)
				}
			})
		}
	}
}

// exactly returns the mode and the number of hard links of each file, directory and link below dir.
func exactly(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			found[path[len(dir):]] = fmt.Sprint(info.Mode(), " ", info.Sys().(*syscall.Stat_t).Nlink)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestHolesOfFiles checks that a checkout does not fill the holes of files, so that a version does not need more of the
// disk than its program did.
func TestHolesOfFiles(t *testing.T) {
	bucket := mem.New()
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	a.Checkout()
	for name, size := range map[string]int64{"small": 1 << 20, "large": 20 << 20, "odd": 1<<20 + 1} {
		a.Write(name, "begin")
		f, err := os.OpenFile(filepath.Join(a.Dir, name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("middle"), size/2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	a.Commit("task-1")
	b.Checkout()
	b.Want(a.Files())
	if had, has := diskUse(t, a.Dir), diskUse(t, b.Dir); has > had+64<<10 {
		t.Errorf("the files take %d bytes of the disk after a checkout, want about %d as before", has, had)
	}
}

func diskUse(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		bytes += st.Blocks * 512
	}
	return bytes
}

// TestRewrittenFiles checks that a commit lists the files that were written with the content that they had.
func TestRewrittenFiles(t *testing.T) {
	w := statetest.OpenWorker(t, mem.New())
	w.Checkout()
	w.Write("artifacts/a", "one")
	w.Write("artifacts/b", "two")
	if c := w.Commit("task-1"); len(c.Rewritten) != 0 {
		t.Errorf("rewritten by the first commit = %q, want none", c.Rewritten)
	}
	w.Checkout()
	w.Write("artifacts/a", "one")
	if c := w.Commit("task-2"); !c.NoChange || !slices.Equal(c.Rewritten, []string{"artifacts/a"}) {
		t.Errorf("commit of the same bytes = no change %v, rewritten %q; want true, [artifacts/a]", c.NoChange,
			c.Rewritten)
	}
	w.Checkout()
	w.Write("artifacts/b", "two")
	w.Write("c", "three")
	if c := w.Commit("task-3"); c.NoChange || !slices.Equal(c.Rewritten, []string{"artifacts/b"}) {
		t.Errorf("commit = no change %v, rewritten %q; want false, [artifacts/b]", c.NoChange, c.Rewritten)
	}
	w.Checkout()
	if c := w.Commit("task-4"); len(c.Rewritten) != 0 {
		t.Errorf("rewritten by a task that writes nothing = %q, want none", c.Rewritten)
	}
}
