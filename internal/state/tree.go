package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/state/ignore"
)

// Tree is a directory of this host that holds a version of a workspace.
// It remembers the files' stat data in memory to find changes without reading.
// A Tree must not be used by two goroutines at once.
type Tree struct {
	ref   Ref
	dir   string
	root  *os.Root
	owner *Owner

	// nodes is what is in dir, as of the last look: all paths that are not excluded.
	nodes    map[string]*node
	round    uint32 // number of the last look
	excluded []string
	known    bool     // nodes is right, but for what a program did since; false after an error
	lent     bool     // a program may have changed things since the last look
	base     *version // what Checkout put here; nil when dir holds no version as it is
}

// node is one path in the directory.
type node struct {
	stat  stat
	entry *entry // what it is known to hold; nil when that must be found out
	racy  bool   // it may change without its stat changing
	seen  uint32 // round of the last look that found it
}

// Ref returns the workspace that the tree holds.
func (t *Tree) Ref() Ref { return t.ref }

// Close releases the directory without touching its content.
func (t *Tree) Close() error { return t.root.Close() }

// Tree returns the directory dir as a tree that will hold ref. What dir contains
// does not matter: the first Checkout makes it exactly the workspace. The
// directory must exist and belong to this tree alone until Close.
func (s *Store) Tree(dir string, ref Ref) (*Tree, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return &Tree{ref: ref, dir: dir, root: root, owner: s.opts.Owner, nodes: map[string]*node{}}, nil
}

// WriteFile puts a file into the tree for the program to find, with the
// directories that it needs, in the ownership of the tree. It counts as a change by
// the task. path is relative and clean; only permission bits of mode count.
func (t *Tree) WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := checkPath(path); err != nil {
		return err
	}
	t.lent = true
	dirs := []string{}
	for dir := parent(path); dir != ""; dir = parent(dir) {
		dirs = append(dirs, dir)
	}
	for _, dir := range slices.Backward(dirs) {
		info, err := t.root.Lstat(dir)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			return fmt.Errorf("write %q: %q is not a directory", path, dir)
		}
		if err := t.mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := t.root.RemoveAll(path); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	e := &entry{Path: path, Kind: kindFile, Mode: uint32(mode.Perm()), Size: int64(len(data)), MTime: time.Now().UnixNano()}
	d := dirHandle{tree: t}
	defer d.close()
	_, err := d.writeFile(e, data)
	return err
}

// ReadFile returns a file that a program may have written, at most limit bytes of
// it. It opens regular files only and follows no link out of the tree.
func (t *Tree) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := t.openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Size returns the size in bytes of a regular file of the tree; false when there is none.
func (t *Tree) Size(path string) (int64, bool) {
	info, err := t.root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// openFile opens a regular file and nothing else, without waiting for the
// other end of a pipe.
func (t *Tree) openFile(path string) (*os.File, error) {
	f, err := t.root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %q: not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// look scans the directory and updates nodes: what did not change since the
// last look keeps its entry.
func (s *Store) look(t *Tree, rules ignore.Rules) error {
	if !t.known { // an interrupted change, or the first look: trust nothing
		clear(t.nodes)
	}
	started := time.Now()
	out, err := scan(t.root, func(path string, dir bool) bool { return s.reserved(path) || rules.Match(path, dir) })
	if err != nil {
		t.known = false
		return err
	}
	t.excluded = slices.DeleteFunc(out.excluded, s.reserved)
	t.round++
	for _, f := range out.found {
		n, ok := t.nodes[f.path]
		if !ok {
			n = &node{}
			t.nodes[f.path] = n
		}
		if !ok || n.racy || n.stat != f.stat {
			n.entry = nil
			n.stat, n.racy = f.stat, f.stat.racy(started)
		}
		n.seen = t.round
	}
	for path, n := range t.nodes {
		if n.seen != t.round {
			delete(t.nodes, path)
		}
	}
	t.known = true
	return nil
}

// reserved reports whether path is, or is below, a mount point of ours.
func (s *Store) reserved(path string) bool { return slices.Contains(s.opts.Reserved, top(path)) }

// MakeRoom gives the disk of the cache to others, for a minute: what was in it can be had again.
// Checkout and Commit call it when a write finds the disk full.
func (s *Store) MakeRoom(ctx context.Context) {
	s.opts.Log.WarnContext(ctx, "a disk is full, the cache makes room", "bytes", s.cache.yield())
}

// diskError names a full disk and makes room.
func (s *Store) diskError(ctx context.Context, err error) error {
	if err == nil || !isDiskFull(err) || errors.Is(err, ErrDiskFull) {
		return err
	}
	s.MakeRoom(ctx)
	return fmt.Errorf("%w: %w", ErrDiskFull, err)
}
