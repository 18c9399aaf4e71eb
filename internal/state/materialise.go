package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// reconcile makes the directory exactly target. nodes must be right. Until it
// returns without an error the tree counts as unknown.
func (s *Store) reconcile(ctx context.Context, t *Tree, target *snapshot) error {
	t.known = false
	create, touch, err := s.removeStrangers(t, target)
	if err != nil {
		return s.diskError(ctx, err)
	}
	if err := s.createAll(ctx, t, create); err != nil {
		return s.diskError(ctx, err)
	}
	slices.SortFunc(touch, func(a, b *entry) int { return cmp.Compare(b.Path, a.Path) }) // children first
	for _, e := range touch {
		if err := t.touch(e); err != nil {
			return s.diskError(ctx, err)
		}
	}
	t.known, t.lent = true, false
	return nil
}

// removeStrangers removes what target does not have, and returns the entries
// that must be written and those whose permissions must be set.
func (s *Store) removeStrangers(t *Tree, target *snapshot) (create, touch []*entry, err error) {
	kept := 0
	for _, e := range target.entries {
		n := t.nodes[e.Path]
		if n != nil && n.entry == e {
			kept++
			continue
		}
		if n != nil && s.holds(t, n, e) {
			kept++
			n.entry = e
			if e.Kind != kindLink && n.stat.Mode != e.Mode || !t.owns(n.stat) {
				touch = append(touch, e)
			}
			continue
		}
		if n != nil {
			if err := t.remove(e.Path); err != nil {
				return nil, nil, err
			}
		}
		create = append(create, e)
		if e.Kind == kindDir {
			touch = append(touch, e)
		}
	}
	if kept < len(t.nodes) {
		err = t.removeBut(target)
	}
	for _, path := range t.excluded {
		if err == nil && target.find(path) != nil {
			err = t.remove(path)
		}
	}
	return create, touch, err
}

// removeBut removes the paths that target does not have.
func (t *Tree) removeBut(target *snapshot) error {
	gone := "\x00"
	for _, path := range slices.Sorted(maps.Keys(t.nodes)) {
		switch {
		case target.find(path) != nil:
		case strings.HasPrefix(path, gone):
			delete(t.nodes, path)
		default:
			if err := t.remove(path); err != nil {
				return err
			}
			gone = path + "/"
		}
	}
	return nil
}

func (t *Tree) owns(st stat) bool { return t.owner == nil || st.UID == uint32(t.owner.UID) }

// holds reports whether the node's content is e's, reading it if need be.
func (s *Store) holds(t *Tree, n *node, e *entry) bool {
	if n.entry != nil {
		return n.entry.sameContent(e)
	}
	if n.stat.Kind != e.Kind {
		return false
	}
	switch e.Kind {
	case kindDir:
		return true
	case kindLink:
		target, err := t.root.Readlink(e.Path)
		return err == nil && target == e.Link
	default:
		return n.stat.Size == e.Size && s.fileHolds(t, e)
	}
}

// fileHolds compares a file with the chunks of e.
func (s *Store) fileHolds(t *Tree, e *entry) bool {
	f, err := t.openFile(e.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := s.buffer()
	defer func() { s.buffers.Put(&buf) }()
	var offset int64
	for _, b := range e.Blobs {
		buf = slices.Grow(buf[:0], int(b.Raw))[:b.Raw]
		if _, err := f.ReadAt(buf, offset); err != nil || objects.Sum(buf) != b.ID {
			return false
		}
		offset += b.Raw
	}
	return true
}

// remove deletes a path with all below it.
func (t *Tree) remove(path string) error {
	delete(t.nodes, path)
	if err := t.root.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %q: %w", path, err)
	}
	return nil
}

// touch sets permissions and owner of something that exists.
func (t *Tree) touch(e *entry) error {
	if t.owner != nil {
		if err := t.root.Lchown(e.Path, t.owner.UID, t.owner.GID); err != nil {
			return fmt.Errorf("own %q: %w", e.Path, err)
		}
	}
	if e.Kind != kindLink {
		if err := t.root.Chmod(e.Path, os.FileMode(e.Mode)); err != nil {
			return fmt.Errorf("chmod %q: %w", e.Path, err)
		}
	}
	d := dirHandle{tree: t}
	defer d.close()
	st, err := d.stat(e.Path)
	if err != nil {
		return err
	}
	n := t.nodes[e.Path]
	n.stat, n.racy = st, st.racy(time.Now())
	return nil
}

// createAll writes entries, which are in the order of their paths and whose
// paths are free: directories, then files as their content arrives, then links.
func (s *Store) createAll(ctx context.Context, t *Tree, create []*entry) error {
	if len(create) == 0 {
		return nil
	}
	var files []*entry
	var links []*entry
	for _, e := range create {
		switch e.Kind {
		case kindDir:
			if err := t.mkdir(e.Path, 0o700); err != nil {
				return err
			}
			t.nodes[e.Path] = &node{stat: stat{Kind: kindDir, Mode: 0o700}, entry: e}
		case kindFile:
			files = append(files, e)
		case kindLink:
			links = append(links, e)
		case kindOdd: // is never stored
		}
	}
	if err := s.createFiles(ctx, t, files); err != nil {
		return err
	}
	d := dirHandle{tree: t}
	defer d.close()
	for _, e := range links {
		st, err := d.symlink(e)
		if err != nil {
			return err
		}
		t.nodes[e.Path] = &node{stat: st, entry: e}
	}
	return nil
}

func (s *Store) createFiles(ctx context.Context, t *Tree, files []*entry) error {
	handles := make([]dirHandle, fetchWorkers())
	for i := range handles {
		handles[i].tree = t
		defer handles[i].close()
	}
	nodes := make([]node, len(files))
	var wants []want
	for i, e := range files {
		nodes[i].entry = e
		switch len(e.Blobs) {
		case 0:
			st, err := handles[0].writeFile(e, nil)
			if err != nil {
				return err
			}
			nodes[i].stat = st
		case 1:
			wants = append(wants, want{&e.Blobs[0], i, 0})
		default:
			if err := handles[0].reserve(e); err != nil {
				return err
			}
			var offset int64
			for j := range e.Blobs {
				wants = append(wants, want{&e.Blobs[j], i, offset})
				offset += e.Blobs[j].Raw
			}
		}
	}
	err := s.fetch(ctx, t.ref.Tenant, wants, func(worker int, w want, data []byte) error {
		e, d := files[w.target], &handles[worker]
		if len(e.Blobs) > 1 {
			return d.writePart(e, data, w.offset)
		}
		st, err := d.writeFile(e, data)
		nodes[w.target].stat = st
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	for i, e := range files {
		if len(e.Blobs) > 1 {
			if nodes[i].stat, err = handles[0].seal(e); err != nil {
				return err
			}
		}
		nodes[i].racy = nodes[i].stat.racy(now)
		t.nodes[e.Path] = &nodes[i]
	}
	return nil
}

func (t *Tree) mkdir(path string, mode os.FileMode) error {
	if err := t.root.Mkdir(path, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if t.owner != nil {
		if err := t.root.Lchown(path, t.owner.UID, t.owner.GID); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}
