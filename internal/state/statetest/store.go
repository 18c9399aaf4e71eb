package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state"
)

// TestStore is what every object store must make possible: the life of
// workspaces as tasks see it. open returns a new handle on one and the same, initially
// empty, object store.
func TestStore(t *testing.T, open func(t *testing.T) state.Objects) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"roundtrip", testRoundTrip},
		{"no change writes nothing", testNoChange},
		{"difference", testDifference},
		{"merge", testMerge},
		{"conflict", testConflict},
		{"the same change twice", testSameChange},
		{"keep both", testKeepBoth},
		{"state files merge by key", testStateKeys},
		{"once per task", testOnce},
		{"applied long ago", testAppliedLongAgo},
		{"revert", testRevert},
		{"strange tree", testStrangeTree},
		{"large file", testLargeFile},
		{"racing workers", testRace},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorld(t, open)) })
	}
}

// world is one workspace and the workers on it.
type world struct {
	open func(t *testing.T) state.Objects
	ref  state.Ref
}

func newWorld(t *testing.T, open func(t *testing.T) state.Objects) *world {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, filepath.Base(t.Name())))
	return &world{open, state.Ref{Tenant: "acme", Workspace: name}}
}

// Worker is a store of its own with one tree, as a worker process has them.
type Worker struct {
	*testing.T
	Store *state.Store
	Tree  *state.Tree
	Dir   string
}

func (w *world) worker(t *testing.T) *Worker { return NewWorker(t, w.open(t), w.ref, state.Options{}) }

// NewWorker makes a worker with an empty cache and an empty directory.
func NewWorker(t *testing.T, objects state.Objects, ref state.Ref, opts state.Options) *Worker {
	t.Helper()
	if opts.CacheDir == "" {
		opts.CacheDir = t.TempDir()
	}
	w := &Worker{T: t, Store: state.New(objects, opts), Dir: t.TempDir()}
	w.Tree = w.NewTree(ref)
	return w
}

// NewTree returns another tree on the worker's directory.
func (w *Worker) NewTree(ref state.Ref) *state.Tree {
	w.Helper()
	tree, err := w.Store.Tree(w.Dir, ref)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := tree.Close(); err != nil {
			w.Errorf("Close = %v", err)
		}
	})
	return tree
}

// Checkout must succeed.
func (w *Worker) Checkout() state.Version {
	w.Helper()
	v, err := w.Store.Checkout(w.Context(), w.Tree)
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// Commit must succeed.
func (w *Worker) Commit(task string) state.Commit {
	w.Helper()
	c, err := w.Store.Commit(w.Context(), w.Tree, state.Change{TaskID: task, Attempt: 1, Result: json.RawMessage(`"` + task + `"`)})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// Write puts a file into the directory as a program would.
func (w *Worker) Write(path, content string) {
	w.Helper()
	full := filepath.Join(w.Dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		w.Fatal(err)
	}
}

// Remove deletes a path as a program would.
func (w *Worker) Remove(path string) {
	w.Helper()
	if err := os.RemoveAll(filepath.Join(w.Dir, path)); err != nil {
		w.Fatal(err)
	}
}

// Files returns what is in the directory: path to content, "-> target" for
// links, "dir" for directories; the mode is prepended when it is not the usual one.
func (w *Worker) Files() map[string]string {
	w.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == w.Dir {
			return err
		}
		rel, err := filepath.Rel(w.Dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			files[rel] = usual(info.Mode(), 0o755, "dir")
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			files[rel] = "-> " + target
			return err
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			files[rel] = usual(info.Mode(), 0o644, string(data))
			return err
		default:
			files[rel] = info.Mode().String()
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return files
}

func usual(mode, want fs.FileMode, content string) string {
	if mode.Perm() == want {
		return content
	}
	return fmt.Sprintf("%o %s", mode.Perm(), content)
}

// Want checks the directory's whole content.
func (w *Worker) Want(want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, w.Files()); diff != "" {
		w.Errorf("files differ (-want +got):\n%s", diff)
	}
}

func testRoundTrip(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
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
	for link, target := range map[string]string{"link": "hello.txt", "out": "/etc/passwd", "dangling": "../../../nowhere"} {
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

func testNoChange(t *testing.T, world *world) {
	w := world.worker(t)
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
	done, err := w.Store.Applied(t.Context(), world.ref, "task-2", time.Time{})
	if done != nil || err != nil {
		t.Errorf("Applied() of a task without changes = %v, %v, want nil", done, err)
	}
}

func testDifference(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
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

func testMerge(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	a.Write("shared", "0")
	a.Write("old/file", "0")
	a.Commit("task-0")
	a.Checkout()
	b.Checkout()
	a.Write("a", "a")
	a.Remove("old")
	b.Write("b", "b")
	b.Write("old/new", "b")
	a.Commit("task-a")
	c := b.Commit("task-b")
	if c.Generation != 3 || len(c.Conflicts) != 0 {
		t.Errorf("Commit() = %+v, want generation 3 without conflicts", c)
	}
	want := map[string]string{"shared": "0", "a": "a", "b": "b", "old": "dir", "old/new": "b"}
	for _, w := range []*Worker{a, b, world.worker(t)} {
		w.Checkout()
		w.Want(want)
	}
}

func testConflict(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	b.Checkout()
	a.Write("same", "a")
	b.Write("same", "b")
	b.Write("other", "b")
	a.Commit("task-a")
	_, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-b", Attempt: 1})
	var conflict *state.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, state.ErrConflict) {
		t.Fatalf("Commit() = %v, want a ConflictError", err)
	}
	if diff := cmp.Diff([]string{"same"}, conflict.Paths); diff != "" {
		t.Errorf("conflicting paths (-want +got):\n%s", diff)
	}
	if err := b.Store.Revert(t.Context(), b.Tree); err != nil {
		t.Errorf("Revert() after a conflict = %v", err)
	}
	b.Want(map[string]string{}) // as it was checked out
	b.Checkout()
	b.Want(map[string]string{"same": "a"})
	b.Write("same", "a and b")
	b.Commit("task-b")
	a.Checkout()
	a.Want(map[string]string{"same": "a and b"})
}

// Two tasks that read 5 and write 6 have counted to 7: what is the same on both sides is a conflict
// as well. Directories hold nothing that a task could have read.
func testSameChange(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	a.Write("counter", "5")
	a.Write("job", "to be done by one")
	a.Write("old/x", "x")
	a.Write("state.json", `{"count": 5, "gone": 1}`)
	a.Commit("task-0")
	a.Checkout()
	b.Checkout()
	for _, w := range []*Worker{a, b} {
		w.Write("counter", "6")
		w.Write("first", "1")
		w.Remove("job")
		w.Remove("old")
		w.Write("state.json", `{"count": 6, "gone": 1}`)
		w.Write("new/"+w.Dir[len(w.Dir)-3:], "")
	}
	a.Commit("task-a")
	_, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-b", Attempt: 1})
	conflict, ok := errors.AsType[*state.ConflictError](err)
	if !ok {
		t.Fatalf("Commit() = %v, want a ConflictError", err)
	}
	want := []string{"counter", "first", "job", "old/x", "state.json"}
	if diff := cmp.Diff(want, conflict.Paths); diff != "" {
		t.Errorf("conflicting paths (-want +got):\n%s", diff)
	}

	// The last attempt keeps both, and what is the same needs no copy.
	a.Checkout()
	b.Checkout()
	for _, w := range []*Worker{a, b} {
		w.Write("counter", "7")
		w.Write("state.json", `{"count": 6}`)
	}
	a.Commit("task-c")
	c, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-b", Attempt: 1, KeepBoth: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"counter", "state.json"}, c.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	b.Checkout()
	for name := range b.Files() {
		if strings.Contains(name, ".conflict-") {
			t.Errorf("there is a copy: %s", name)
		}
	}
}

func testKeepBoth(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	a.Write("edited-removed", "0")
	a.Write("removed-edited", "0")
	a.Commit("task-0")
	a.Checkout()
	b.Checkout()
	a.Write("same", "a")
	a.Write("edited-removed", "a")
	a.Remove("removed-edited")
	a.Write("file-or-dir", "a")
	b.Write("same", "b")
	b.Remove("edited-removed")
	b.Write("removed-edited", "b")
	b.Write("file-or-dir/x", "b")
	b.Write("fine", "b")
	a.Commit("task-a")
	c, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-b", Attempt: 1, KeepBoth: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"edited-removed", "file-or-dir", "removed-edited", "same"}
	if diff := cmp.Diff(want, c.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	b.Checkout()
	b.Want(map[string]string{
		"same": "a", "same.conflict-task-b": "b", "edited-removed": "a", "removed-edited": "b", "fine": "b",
		"file-or-dir": "dir", "file-or-dir/x": "b", "file-or-dir.conflict-task-b": "a",
	})
}

func testStateKeys(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	a.Write("state.json", `{"a": 0, "b": 0, "gone": 1, "big": 12345678901234567890}`)
	a.Commit("task-0")
	a.Checkout()
	b.Checkout()
	a.Write("state.json", `{"a": 1, "b": 0, "gone": 1, "big": 12345678901234567890}`)
	a.Write("state/x.json", `{"a": true}`)
	b.Write("state.json", `{"a": 0, "b": {"c": [2]}, "big": 12345678901234567890}`)
	b.Write("state/x.json", `{"b": true}`)
	a.Commit("task-a")
	b.Commit("task-b")
	b.Checkout()
	b.Want(map[string]string{
		"state.json":   "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": [\n      2\n    ]\n  },\n  \"big\": 12345678901234567890\n}\n",
		"state":        "dir",
		"state/x.json": "{\n  \"a\": true,\n  \"b\": true\n}\n",
	})

	a.Checkout()
	a.Write("state.json", `{"a": 2}`)
	b.Write("state.json", `{"a": 3}`)
	a.Commit("task-c")
	_, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-d", Attempt: 1})
	if !errors.Is(err, state.ErrConflict) {
		t.Errorf("Commit() of the same key = %v, want a conflict", err)
	}
}

func testOnce(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	a.Checkout()
	b.Checkout()
	a.Write("n", "1")
	b.Write("n", "1 from a zombie")
	big := json.RawMessage(`"` + strings.Repeat("result ", 10_000) + `"`)
	if _, err := a.Store.Commit(t.Context(), a.Tree, state.Change{TaskID: "task-1", Attempt: 1, Result: big}); err != nil {
		t.Fatal(err)
	}
	c, err := b.Store.Commit(t.Context(), b.Tree, state.Change{TaskID: "task-1", Attempt: 2, Result: json.RawMessage(`"2"`)})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Already || c.Generation != 1 || c.Attempt != 1 || string(c.Result) != string(big) {
		t.Errorf("second Commit() = already %v, generation %d, attempt %d, %d bytes of result; want the first one's", c.Already, c.Generation, c.Attempt, len(c.Result))
	}
	b.Checkout()
	b.Want(map[string]string{"n": "1"})
	c = b.Commit("task-1")
	if !c.NoChange {
		t.Errorf("Commit() without changes = %+v, want no change", c)
	}
	done, err := b.Store.Applied(t.Context(), world.ref, "task-1", time.Now().Add(-time.Hour))
	if err != nil || done == nil || string(done.Result) != string(big) {
		t.Errorf("Applied() = %v, %v, want the first attempt's commit", done, err)
	}
}

func testAppliedLongAgo(t *testing.T, world *world) {
	a := world.worker(t)
	start := time.Now()
	const commits = 130 // more than HEAD remembers
	for i := range commits {
		a.Checkout()
		a.Write("counter", strconv.Itoa(i))
		a.Commit(fmt.Sprintf("task-%020d", i))
	}
	b := world.worker(t)
	for _, i := range []int{0, 1, 40, commits - 1} {
		id := fmt.Sprintf("task-%020d", i)
		c, err := b.Store.Applied(t.Context(), world.ref, id, start)
		if err != nil || c == nil || c.TaskID != id || c.Generation != int64(i+1) || string(c.Result) != `"`+id+`"` {
			t.Errorf("Applied(%s) = %+v, %v, want generation %d", id, c, err, i+1)
		}
	}
	if c, err := b.Store.Applied(t.Context(), world.ref, "never", time.Time{}); c != nil || err != nil {
		t.Errorf("Applied(never) = %+v, %v, want nil", c, err)
	}
	b.Checkout()
	b.Want(map[string]string{"counter": strconv.Itoa(commits - 1)})
}

func testRevert(t *testing.T, world *world) {
	w := world.worker(t)
	w.Checkout()
	w.Write("a", "1")
	w.Write("dir/b", "1")
	w.Commit("task-1")
	w.Checkout()
	want := w.Files()
	w.Write("a", "2")
	w.Remove("dir")
	w.Write("new/file", "2")
	w.Write("__pycache__/x.pyc", "2")
	if err := w.Store.Revert(t.Context(), w.Tree); err != nil {
		t.Fatal(err)
	}
	w.Want(want)
	w.Checkout()
	if c := w.Commit("task-2"); !c.NoChange {
		t.Errorf("Commit() after Revert = %+v, want no change", c)
	}
}

func testStrangeTree(t *testing.T, world *world) {
	a := world.worker(t)
	a.Checkout()
	a.Write("file", "12345")
	a.Write("same", "12345")
	a.Write("dir/x", "1")
	a.Commit("task-1")
	want := a.Files()

	b := world.worker(t)
	b.Write("file", "54321") // of the right size
	b.Write("same", "12345")
	b.Write("dir", "not a directory")
	b.Write("garbage/deep/x", "1")
	b.Write(".venv/lib/x", "another workspace's")
	b.Write("servers/mount/x", "stays")
	if err := os.Symlink(a.Dir, filepath.Join(b.Dir, "escape")); err != nil {
		t.Fatal(err)
	}
	b.Checkout()
	got := b.Files()
	for _, reserved := range []string{"servers", "servers/mount", "servers/mount/x"} {
		if got[reserved] == "" {
			t.Errorf("%s is gone, want mount points left alone", reserved)
		}
		delete(got, reserved)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
	a.Want(want)
	if c := b.Commit("task-2"); !c.NoChange {
		t.Errorf("Commit() = %+v, want mount points excluded", c)
	}
}

func testLargeFile(t *testing.T, world *world) {
	a, b := world.worker(t), world.worker(t)
	content := Random(1, 12<<20)
	hole := strings.Repeat("\x00", 9<<20)
	a.Checkout()
	a.Write("large", content)
	a.Write("hole", hole)
	a.Commit("task-1")
	b.Checkout()
	if got := b.Files(); got["large"] != content || got["hole"] != hole {
		t.Error("large files came back different")
	}
	content = content[:5<<20] + "inserted" + content[5<<20:]
	a.Checkout()
	a.Write("large", content)
	a.Commit("task-2")
	b.Checkout()
	if b.Files()["large"] != content {
		t.Error("changed large file came back different")
	}
}

func testRace(t *testing.T, world *world) {
	const workers, rounds = 6, 4
	errs := make(chan error, workers)
	for i := range workers {
		w := world.worker(t)
		go func() {
			errs <- func() error {
				for r := range rounds {
					if _, err := w.Store.Checkout(t.Context(), w.Tree); err != nil {
						return err
					}
					path := fmt.Sprintf("w%d-%d", i, r)
					if err := os.WriteFile(filepath.Join(w.Dir, path), []byte(path), 0o644); err != nil {
						return err
					}
					if _, err := w.Store.Commit(t.Context(), w.Tree, state.Change{TaskID: path, Attempt: 1}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	w := world.worker(t)
	if v := w.Checkout(); v.Generation != workers*rounds || v.Files != workers*rounds {
		t.Errorf("Checkout() = %+v, want generation and files %d", v, workers*rounds)
	}
}
