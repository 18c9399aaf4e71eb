package statetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func testRoundTrip(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	if v := a.Checkout(); v.Generation != 0 {
		t.Errorf("generation of a new workspace = %d, want 0", v.Generation)
	}
	a.Write("hello.txt", "hello")
	a.Write("deep/er/file", "x")
	a.Write("empty", "")
	a.Write("run.sh", "#!/bin/sh\n")
	a.Write("name with spaces, ü and \xff", "bytes")
	for path, mode := range map[string]fs.FileMode{"run.sh": 0o755, "hello.txt": 0o600} {
		if err := os.Chmod(filepath.Join(a.Dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(a.Dir, "nothing/here"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"link": "hello.txt", "out": "/etc/passwd",
		"dangling": "../../../nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(a.Dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	stamp := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	if err := os.Chtimes(filepath.Join(a.Dir, "empty"), stamp, stamp); err != nil {
		t.Fatal(err)
	}
	want := a.Files()
	c := a.Commit("task-1")
	if c.Generation != 1 || c.NoChange || c.Already || len(c.Changed) != len(want) {
		t.Errorf("Commit() = %+v, want generation 1 with %d changes", c, len(want))
	}
	if v := b.Checkout(); v.Generation != 1 || v.Files != len(want) || v.Bytes != 5+1+10+5 {
		t.Errorf("Checkout() = %+v, want generation 1 with %d files and 21 bytes", v, len(want))
	}
	b.Want(want)
	info, err := os.Stat(filepath.Join(b.Dir, "empty"))
	if err != nil {
		t.Fatal(err)
	}
	if !info.ModTime().Equal(stamp) {
		t.Errorf("modification time = %v, want %v", info.ModTime(), stamp)
	}
}

func testNoChange(t *testing.T, ws *workspace) {
	w := ws.worker(t)
	w.Checkout()
	w.Write("a", "1")
	w.Commit("task-1")
	w.Checkout()
	now := time.Now()
	if err := os.Chtimes(filepath.Join(w.Dir, "a"), now, now); err != nil {
		t.Fatal(err)
	}
	c := w.Commit("task-2")
	if !c.NoChange || c.Generation != 1 || string(c.Result) != `"task-2"` {
		t.Errorf("Commit() of a touched file = %+v, want no change at generation 1", c)
	}
	done, err := w.Store.Applied(t.Context(), ws.ref, "task-2", time.Time{})
	if done != nil || err != nil {
		t.Errorf("Applied() of a task without changes = %v, %v, want nil", done, err)
	}
}

func testDifference(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	a.Checkout()
	a.Write("keep", "1")
	a.Write("edit", "1")
	a.Write("dir/gone", "1")
	a.Write("becomes-dir", "1")
	a.Write("becomes-file/x", "1")
	a.Commit("task-1")
	b.Checkout()
	b.Want(a.Files())

	a.Checkout()
	a.Remove("dir")
	a.Remove("becomes-dir")
	a.Remove("becomes-file")
	a.Write("becomes-dir/x", "2")
	a.Write("becomes-file", "2")
	a.Write("edit", "2")
	a.Write("new", "2")
	a.Commit("task-2")
	if v := b.Checkout(); v.Generation != 2 {
		t.Errorf("generation = %d, want 2", v.Generation)
	}
	b.Want(map[string]string{
		"keep": "1", "edit": "2", "new": "2", "becomes-dir": "dir", "becomes-dir/x": "2", "becomes-file": "2",
	})
}
