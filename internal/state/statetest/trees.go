package statetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testRevert(t *testing.T, ws *workspace) {
	w := ws.worker(t)
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

func testStrangeTree(t *testing.T, ws *workspace) {
	a := ws.worker(t)
	a.Checkout()
	a.Write("file", "12345")
	a.Write("same", "12345")
	a.Write("dir/x", "1")
	a.Commit("task-1")
	want := a.Files()

	b := ws.worker(t)
	b.Write("file", "54321") // has the right size
	b.Write("same", "12345")
	b.Write("dir", "not a directory")
	b.Write("garbage/deep/x", "1")
	b.Write(".venv/lib/x", "another workspace's")
	b.Write("servers/x", "another workspace's")
	if err := os.Symlink(a.Dir, filepath.Join(b.Dir, "escape")); err != nil {
		t.Fatal(err)
	}
	b.Checkout()
	b.Want(want)
	a.Want(want)
	b.Write("servers/x", "left")
	b.Write("client/x", "left")
	b.Write("lost+found/x", "left")
	b.Write("dir/__pycache__/x.pyc", "left")
	if err := os.Symlink("dir", filepath.Join(b.Dir, "__pycache__")); err != nil {
		t.Fatal(err)
	}
	if c := b.Commit("task-2"); !c.NoChange {
		t.Errorf("Commit() = %+v, want reserved and excluded names left out, whether of files, directories or links", c)
	}
	b.Checkout() // checks out the same version
	b.Want(want)
	if err := b.Tree.WriteFile("servers/x.py", []byte("1"), 0o644); err == nil {
		t.Error("WriteFile(servers/x.py) succeeded")
	}
}

func testLargeFile(t *testing.T, ws *workspace) {
	a, b := ws.worker(t), ws.worker(t)
	content := Random(1, 12<<20)
	hole := strings.Repeat("\x00", 9<<20)
	a.Checkout()
	a.Write("large", content)
	a.Write("hole", hole)
	a.Commit("task-1")
	b.Checkout()
	if got := b.Files(); got["large"] != content || got["hole"] != hole {
		t.Error("large files differ after a checkout")
	}
	content = content[:5<<20] + "inserted" + content[5<<20:]
	a.Checkout()
	a.Write("large", content)
	a.Commit("task-2")
	b.Checkout()
	if b.Files()["large"] != content {
		t.Error("a changed large file differs after a checkout")
	}
}

func testRace(t *testing.T, ws *workspace) {
	const workers, rounds = 6, 4
	errs := make(chan error, workers)
	for i := range workers {
		w := ws.worker(t)
		go func() {
			errs <- func() error {
				for r := range rounds {
					path := fmt.Sprintf("w%d-%d", i, r)
					if _, err := w.Run(path, path, path); err != nil {
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
	w := ws.worker(t)
	if v := w.Checkout(); v.Generation != workers*rounds || v.Files != workers*rounds {
		t.Errorf("Checkout() = %+v, want generation and files %d", v, workers*rounds)
	}
}
