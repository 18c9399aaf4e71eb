package statetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/state"
)

func testMerge(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
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
	for _, w := range []*Worker{a, b, ws.worker(t)} {
		w.Checkout()
		w.Want(want)
	}
}

func testConflict(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	a.Checkout()
	b.Checkout()
	a.Write("same", "a")
	b.Write("same", "b")
	b.Write("other", "b")
	a.Commit("task-a")
	_, err := b.Store.Commit(t.Context(), b.Tree, state.CommitOptions{TaskID: "task-b", Attempt: 1})
	var conflict *state.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, state.ErrConflict) {
		t.Fatalf("Commit() = %v, want a ConflictError", err)
	}
	if diff := cmp.Diff([]string{"same"}, conflict.Paths); diff != "" {
		t.Errorf("conflicting paths (-want +got):\n%s", diff)
	}
	if err := b.Store.Revert(t.Context(), b.Tree); err != nil {
		t.Errorf("Revert() after a conflict = %v, want nil", err)
	}
	b.Want(map[string]string{}) // the version that was checked out
	b.Checkout()
	b.Want(map[string]string{"same": "a"})
	b.Write("same", "a and b")
	b.Commit("task-b")
	a.Checkout()
	a.Want(map[string]string{"same": "a and b"})
}

// testSameChange checks that the same change on both sides is a conflict: if two tasks read 5 and write 6, one
// increment is lost. Directories do not conflict, because they have no content that a task could have read.
func testSameChange(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	a.Checkout()
	a.Write("counter", "5")
	a.Write("job", "for one task")
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
	_, err := b.Store.Commit(t.Context(), b.Tree, state.CommitOptions{TaskID: "task-b", Attempt: 1})
	conflict, ok := errors.AsType[*state.ConflictError](err)
	if !ok {
		t.Fatalf("Commit() = %v, want a ConflictError", err)
	}
	want := []string{"counter", "first", "job", "old/x", "state.json"}
	if diff := cmp.Diff(want, conflict.Paths); diff != "" {
		t.Errorf("conflicting paths (-want +got):\n%s", diff)
	}

	// The last attempt keeps both versions. Equal versions need no copy.
	a.Checkout()
	b.Checkout()
	for _, w := range []*Worker{a, b} {
		w.Write("counter", "7")
		w.Write("state.json", `{"count": 6}`)
	}
	a.Commit("task-c")
	c, err := b.Store.Commit(t.Context(), b.Tree, state.CommitOptions{TaskID: "task-b", Attempt: 1, KeepBoth: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"counter", "state.json"}, c.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	b.Checkout()
	for name := range b.Files() {
		if strings.Contains(name, ".conflict-") {
			t.Errorf("the copy %s exists, although both versions are equal", name)
		}
	}
}

func testKeepBoth(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
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
	c, err := b.Store.Commit(t.Context(), b.Tree, state.CommitOptions{TaskID: "task-b", Attempt: 1, KeepBoth: true})
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

// testStateMode checks that a merged state document has the mode that one side changed, and that it is a conflict if
// both sides changed the mode differently.
func testStateMode(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	chmod := func(w *Worker, mode os.FileMode) {
		if err := os.Chmod(filepath.Join(w.Dir, "state.json"), mode); err != nil {
			t.Fatal(err)
		}
	}
	a.Checkout()
	a.Write("state.json", `{"a": 0, "b": 0}`)
	a.Commit("task-0")
	want := "{\n  \"a\": 1,\n  \"b\": 1\n}\n"
	for i, c := range []struct {
		a, b os.FileMode
		want string // empty means a conflict
	}{
		{0o600, 0o644, "600 " + want}, {0o644, 0o600, "600 " + want}, {0o640, 0o640, "640 " + want}, {0o600, 0o640, ""},
	} {
		for _, w := range []*Worker{a, b} {
			w.Checkout()
			w.Write("state.json", `{"a": 0, "b": 0}`)
			chmod(w, 0o644)
			w.Commit(fmt.Sprint("reset-", i))
		}
		a.Checkout()
		b.Checkout()
		a.Write("state.json", `{"a": 1, "b": 0}`)
		b.Write("state.json", `{"a": 0, "b": 1}`)
		chmod(a, c.a)
		chmod(b, c.b)
		a.Commit(fmt.Sprint("a-", i))
		task := state.CommitOptions{TaskID: fmt.Sprint("b-", i), Attempt: 1}
		_, err := b.Store.Commit(t.Context(), b.Tree, task)
		if c.want == "" {
			if !errors.Is(err, state.ErrConflict) {
				t.Errorf("Commit() with modes %o and %o = %v, want a conflict", c.a, c.b, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Checkout()
		b.Want(map[string]string{"state.json": c.want})
	}
}

func testStateKeys(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	a.Checkout()
	a.Write("state.json", `{"a": 0, "b": 0, "gone": 1, "big": 12345678901234567890}`)
	a.Commit("task-0")
	a.Checkout()
	b.Checkout()
	a.Write("state.json", `{"a": 1, "b": 0, "gone": 1, "big": 12345678901234567890}`)
	a.Write("state/x.json", `{"a": true}`)
	b.Write("state.json", `{"a": 0, "b": {"c": [2]}, "big": 12345678901234567890}`)
	b.Write("state/x.json", `{"b": true}`)
	a.Write("state.yaml", "a: 1\n")
	b.Write("state.yaml", "b: [x]\n")
	a.Commit("task-a")
	b.Commit("task-b")
	b.Checkout()
	b.Want(map[string]string{
		"state.json": "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": [\n      2\n    ]\n  },\n" +
			"  \"big\": 12345678901234567890\n}\n",
		"state.yaml":   "a: 1\nb:\n    - x\n",
		"state":        "dir",
		"state/x.json": "{\n  \"a\": true,\n  \"b\": true\n}\n",
	})

	// A program writes the keys that it does not change in its own notation. The merge changes no notation.
	a.Checkout()
	a.Write("state.json", `{"n": [1.10, 1E2], "o": {"y": "\u00e9<&>", "x": "\u2028"}, "a": 0, "b": "<>&"}`)
	a.Commit("task-1")
	a.Checkout()
	b.Checkout()
	a.Write("state.json", `{"n": [1.1, 100.0], "o": {"y": "é<&>", "x": "`+"\u2028"+`"}, "a": "<\u2029&", "b": "<>&"}`)
	b.Write("state.json", `{"n": [1.1, 1e2], "o": {"x": "\u2028", "y": "é\u003c&>"}, "a": 0, "b": "`+"\u2028"+`<é"}`)
	a.Commit("task-2")
	b.Commit("task-3")
	b.Checkout()
	b.Want(map[string]string{
		"state.json": "{\n  \"a\": \"<\\u2029&\",\n  \"b\": \"\u2028<é\",\n" +
			"  \"n\": [\n    1.1,\n    100.0\n  ],\n" +
			"  \"o\": {\n    \"y\": \"é<&>\",\n    \"x\": \"\u2028\"\n  }\n}\n",
		"state.yaml":   "a: 1\nb:\n    - x\n",
		"state":        "dir",
		"state/x.json": "{\n  \"a\": true,\n  \"b\": true\n}\n",
	})

	a.Checkout()
	a.Write("state.json", `{"a": 2}`)
	b.Write("state.json", `{"a": 3}`)
	a.Commit("task-c")
	_, err := b.Store.Commit(t.Context(), b.Tree, state.CommitOptions{TaskID: "task-d", Attempt: 1})
	if !errors.Is(err, state.ErrConflict) {
		t.Errorf("Commit() of the same key = %v, want a conflict", err)
	}
}
