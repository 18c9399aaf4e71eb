package state

import (
	"context"
	"os"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/tree"
)

// Tree is a local directory that holds a version of a workspace. A Tree must not be used by two goroutines at once.
type Tree struct {
	ref Ref
	dir *tree.Dir
	// inUse is set from Checkout to Commit: a program may have changed the directory since it was scanned, and Commit
	// is allowed.
	inUse bool
	base  *repo.Version // version that Checkout materialised; nil if the directory may hold anything else
	views []string      // files that the fleet has written since Checkout, with WriteView
}

// Tree opens the directory dir as a tree for the workspace ref. The directory must exist, and only this tree may use
// it until Close. Its content does not matter: the first Checkout makes it equal to the workspace.
func (s *Store) Tree(dir string, ref Ref) (*Tree, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	d, err := tree.Open(dir, ref, s.repo.Store, s.dirs)
	if err != nil {
		return nil, err
	}
	return &Tree{ref: ref, dir: d}, nil
}

// Watch makes a Commit skip the scan of a large tree that was not written to, see tree.Dir.Watch. It must be called
// before the first Checkout.
func (t *Tree) Watch(untouched func() bool) { t.dir.Watch(untouched) }

// Grown reports whether a directory takes space from later programs, see tree.Dir.Grown. Call it after Commit or
// Revert.
func (t *Tree) Grown() bool { return t.dir.Grown() }

// Ref returns the workspace that the tree holds.
func (t *Tree) Ref() Ref { return t.ref }

// Close releases the directory without touching its content.
func (t *Tree) Close() error { return t.dir.Close() }

// WriteFile writes a file and its missing parent directories, owned by Options.Owner. It replaces what is at path, even
// a directory. A Commit treats the file like one that the program wrote. path must be relative, clean and neither
// reserved nor excluded by default; only the permission bits of mode count.
func (t *Tree) WriteFile(path string, data []byte, mode os.FileMode) error {
	t.inUse = true
	return t.dir.WriteFile(path, data, mode)
}

// WriteView is like WriteFile, for a file that the fleet keeps up to date. A Commit stores it only together with other
// changes, without conflicts: the last commit wins.
func (t *Tree) WriteView(path string, data []byte) error {
	t.views = append(t.views, path)
	return t.WriteFile(path, data, 0o644)
}

// Paths returns dir, if it exists, and the paths below it in the version that was checked out.
func (t *Tree) Paths(dir string) []string {
	if t.base == nil {
		return nil
	}
	var paths []string
	for _, e := range t.base.Set.Below(dir) {
		paths = append(paths, e.Path)
	}
	return paths
}

// ReadFile returns at most limit bytes of a file that a program may have written. It opens regular files only, and
// follows no symbolic link out of the tree.
func (t *Tree) ReadFile(path string, limit int64) ([]byte, error) { return t.dir.ReadFile(path, limit) }

// Size returns a file's size in bytes. It returns false unless path is a regular file.
func (t *Tree) Size(path string) (int64, bool) { return t.dir.Size(path) }

// materialise makes the directory equal to target. After an error, t.base is nil. Otherwise t.base is unchanged: a
// caller that materialises another version sets it.
func (t *Tree) materialise(ctx context.Context, target *format.EntrySet) error {
	base := t.base
	t.base = nil
	if err := t.dir.Materialise(ctx, target, t.inUse); err != nil {
		return err
	}
	t.inUse, t.base = false, base
	return nil
}
