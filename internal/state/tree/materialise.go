package tree

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/removal"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Materialise makes the directory equal to target. With rescan, or if the Dir does not know what the directory holds,
// it first scans the directory. It removes excluded files, so that a program finds nothing that an earlier one left.
func (t *Dir) Materialise(ctx context.Context, target *format.EntrySet, rescan bool) error {
	if !t.known || rescan {
		if err := t.rescan(); err != nil {
			return err
		}
	}
	for _, path := range t.excluded {
		if err := t.remove(path); err != nil {
			t.known = false
			return err
		}
	}
	t.excluded = nil
	t.setLayoutAside(target)
	err := t.content.DiskError(ctx, t.reconcile(ctx, target))
	t.unversioned, t.retimed = t.unversioned && err != nil, t.retimed && err != nil
	return err
}

// reconcile makes the directory equal to target. nodes must be valid. After an error, the directory's content is
// unknown.
func (t *Dir) reconcile(ctx context.Context, target *format.EntrySet) error {
	t.known = false
	create, adjust, err := t.removeOthers(target)
	if err != nil {
		return err
	}
	if err := t.createAll(ctx, create); err != nil {
		return err
	}
	slices.SortFunc(adjust, func(a, b *format.Entry) int { return cmp.Compare(b.Path, a.Path) }) // children first
	for _, e := range adjust {
		if err := t.setAttributes(e); err != nil {
			return err
		}
	}
	if err := t.makeLayout(); err != nil {
		return fmt.Errorf("make the directories of the workspace: %w", err)
	}
	t.known = true
	return nil
}

// isRetimed reports whether a file has another time than the entry e of its content.
func (n *node) isRetimed(e *format.Entry) bool {
	return e.Kind == format.KindFile && n.stat.MTime != e.MTime
}

// removeOthers removes what target does not have. It returns the entries to write, and those whose permissions, owner
// and time must be set.
func (t *Dir) removeOthers(target *format.EntrySet) (create, adjust []*format.Entry, err error) {
	kept := 0
	for _, e := range target.Entries {
		n := t.nodes[e.Path]
		extra := n != nil && n.stat.Unversioned
		if n != nil && n.entry == e && !extra && !n.isRetimed(e) {
			kept++
			continue
		}
		if n != nil && (!extra || e.Kind == format.KindDir) && t.holds(n, e) {
			kept++
			n.entry = e
			if extra || e.Kind != format.KindSymlink && n.stat.Mode != e.Mode || !t.owns(n.stat) || n.isRetimed(e) {
				adjust = append(adjust, e)
			}
			continue
		}
		if n != nil {
			if err := t.remove(e.Path); err != nil {
				return nil, nil, err
			}
		}
		create = append(create, e)
		if e.Kind == format.KindDir {
			adjust = append(adjust, e)
		}
	}
	if kept < len(t.nodes) {
		err = t.removeExcept(target)
	}
	return create, adjust, err
}

// removeExcept removes the paths that target does not have.
func (t *Dir) removeExcept(target *format.EntrySet) error {
	removed := "\x00" // prefix of paths that were removed with their directory
	for _, path := range slices.Sorted(maps.Keys(t.nodes)) {
		switch {
		case target.Find(path) != nil:
		case strings.HasPrefix(path, removed):
			delete(t.nodes, path)
		default:
			if err := t.remove(path); err != nil {
				return err
			}
			removed = path + "/"
		}
	}
	return nil
}

// owns reports whether a path with the stat st belongs to Options.Owner. Without an Owner, every path does.
func (t *Dir) owns(st stat) bool {
	return t.opts.Owner == nil || st.UID == uint32(t.opts.Owner.UID)
}

// holds reports whether a node has e's content. It reads the file if the node's entry is unknown.
func (t *Dir) holds(n *node, e *format.Entry) bool {
	if n.entry != nil {
		return n.entry.SameContent(e)
	}
	if n.stat.Kind != e.Kind {
		return false
	}
	switch e.Kind {
	case format.KindDir:
		return true
	case format.KindSymlink:
		target, err := t.root.Readlink(e.Path)
		return err == nil && target == e.Target
	default:
		return n.stat.Size == e.Size && t.fileHolds(e)
	}
}

// fileHolds reports whether the file at e's path has e's content.
func (t *Dir) fileHolds(e *format.Entry) bool {
	f, err := t.openFile(e.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := t.content.Buffer()
	defer func() { t.content.PutBuffer(&buf) }()
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

// remove deletes a path and everything below it.
func (t *Dir) remove(path string) error {
	delete(t.nodes, path)
	if err := removal.All(t.root, path); err != nil {
		return fmt.Errorf("remove %q: %w", path, err)
	}
	return nil
}

// setAttributes sets an existing path's permissions and owner, and the time of a file.
func (t *Dir) setAttributes(e *format.Entry) error {
	if err := t.chown(t.root, e.Path); err != nil {
		return err
	}
	if e.Kind != format.KindSymlink {
		if err := t.root.Chmod(e.Path, os.FileMode(e.Mode)); err != nil {
			return fmt.Errorf("chmod %q: %w", e.Path, err)
		}
	}
	if e.Kind == format.KindFile {
		mtime := time.Unix(0, e.MTime)
		if err := t.root.Chtimes(e.Path, mtime, mtime); err != nil {
			return fmt.Errorf("set times of %q: %w", e.Path, err)
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

// createAll writes sorted entries at paths that do not exist: first directories, then files in the order in which their
// content arrives, then symbolic links.
func (t *Dir) createAll(ctx context.Context, create []*format.Entry) error {
	if len(create) == 0 {
		return nil
	}
	var files, symlinks []*format.Entry
	for _, e := range create {
		switch e.Kind {
		case format.KindDir:
			if err := t.mkdir(e.Path, 0o700); err != nil {
				return err
			}
			t.nodes[e.Path] = &node{stat: stat{Kind: format.KindDir, Mode: 0o700}, entry: e}
		case format.KindFile:
			files = append(files, e)
		case format.KindSymlink:
			symlinks = append(symlinks, e)
		case format.KindOther: // never stored
		}
	}
	if err := t.createFiles(ctx, files); err != nil {
		return err
	}
	d := dirHandle{tree: t}
	defer d.close()
	for _, e := range symlinks {
		st, err := d.symlink(e)
		if err != nil {
			return err
		}
		t.nodes[e.Path] = &node{stat: st, entry: e}
	}
	return nil
}

// createFiles writes files at paths that do not exist, in the order in which their content arrives.
func (t *Dir) createFiles(ctx context.Context, files []*format.Entry) error {
	handles := make([]dirHandle, content.FetchWorkers)
	for i := range handles {
		handles[i].tree = t
		defer handles[i].close()
	}
	nodes := make([]node, len(files))
	var wants []content.Want
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
			wants = content.AppendWants(wants, e, i)
		default:
			if err := handles[0].reserve(e); err != nil {
				return err
			}
			wants = content.AppendWants(wants, e, i)
		}
	}
	err := t.content.Fetch(ctx, t.ref.Tenant, wants, func(worker int, w content.Want, data []byte) error {
		e, d := files[w.Target], &handles[worker]
		if len(e.Blobs) > 1 {
			return d.writePart(e, data, w.Offset)
		}
		st, err := d.writeFile(e, data)
		nodes[w.Target].stat = st
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	for i, e := range files {
		if len(e.Blobs) > 1 {
			if nodes[i].stat, err = handles[0].finishParts(e); err != nil {
				return err
			}
		}
		nodes[i].racy = nodes[i].stat.racy(now)
		t.nodes[e.Path] = &nodes[i]
	}
	return nil
}

func (t *Dir) mkdir(path string, mode os.FileMode) error {
	if err := t.root.Mkdir(path, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return t.chown(t.root, path)
}

// chown sets the owner of a name in dir, if Options.Owner is set.
func (t *Dir) chown(dir *os.Root, name string) error {
	if t.opts.Owner == nil {
		return nil
	}
	return dir.Lchown(name, t.opts.Owner.UID, t.opts.Owner.GID)
}
