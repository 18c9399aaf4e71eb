package statetest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
)

// Worker is a store and a tree, like those of one worker process.
type Worker struct {
	*testing.T
	Store *state.Store
	Tree  *state.Tree
	Dir   string
}

func (w *workspace) worker(t *testing.T) *Worker { return NewWorker(t, w.open(t), w.ref, w.opts) }

// NewWorker returns a worker with an empty directory and, unless opts has a cache directory, an empty cache.
func NewWorker(t *testing.T, bucket objects.Objects, ref state.Ref, opts state.Options) *Worker {
	t.Helper()
	if opts.CacheDir == "" {
		opts.CacheDir = t.TempDir()
	}
	w := &Worker{T: t, Store: state.New(bucket, opts), Dir: t.TempDir()}
	w.Tree = w.NewTree(ref)
	return w
}

// NewTree returns a tree on the worker's directory.
func (w *Worker) NewTree(ref state.Ref) *state.Tree {
	w.Helper()
	tree, err := w.Store.Tree(w.Dir, ref)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := tree.Close(); err != nil {
			w.Errorf("Close = %v, want nil", err)
		}
	})
	return tree
}

// Checkout checks out the newest version, and fails the test after an error.
func (w *Worker) Checkout() state.Version {
	w.Helper()
	v, err := w.Store.Checkout(w.Context(), w.Tree, nil)
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// Commit commits as a task's first attempt, and fails the test after an error.
func (w *Worker) Commit(task string) state.Commit {
	w.Helper()
	c, err := w.Store.Commit(w.Context(), w.Tree,
		state.CommitOptions{TaskID: task, Attempt: 1, Result: json.RawMessage(`"` + task + `"`)})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// Run checks out the newest version, writes a file, and commits. Unlike the other methods, it does not end the test, so
// any goroutine may call it.
func (w *Worker) Run(task, path, content string) (state.Commit, error) {
	if _, err := w.Store.Checkout(w.Context(), w.Tree, nil); err != nil {
		return state.Commit{}, err
	}
	if err := os.WriteFile(filepath.Join(w.Dir, path), []byte(content), 0o644); err != nil {
		return state.Commit{}, err
	}
	return w.Store.Commit(w.Context(), w.Tree, state.CommitOptions{TaskID: task, Attempt: 1})
}

// Write writes a file in the directory as a program would.
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

// Files returns what is in the directory by path: the content of a file, "-> target" for a symbolic link, and "dir" for
// a directory. An unusual mode is prepended.
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

// usual returns content, with the mode prepended unless the mode is want.
func usual(mode, want fs.FileMode, content string) string {
	if mode.Perm() == want {
		return content
	}
	return fmt.Sprintf("%o %s", mode.Perm(), content)
}

// Want compares everything in the directory with want.
func (w *Worker) Want(want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, w.Files()); diff != "" {
		w.Errorf("files differ (-want +got):\n%s", diff)
	}
}
