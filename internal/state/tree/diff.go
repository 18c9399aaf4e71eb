package tree

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/state/format"
)

// Upload is what changed in a directory.
type Upload struct {
	Changes []format.Change // since the version that was materialised
	Blobs   []format.Blob   // of the extra content

	wait func() error // nil: all content is stored
}

// Wait waits until the content is in the store. Only then may a HEAD name it.
func (u *Upload) Wait() error {
	if u.wait == nil {
		return nil
	}
	return u.wait()
}

// Diff finds what changed since base was materialised, checks the quota, and only then uploads content, which may
// still be on its way when it returns. With dedup, content of base is not uploaded again. extra is uploaded too, if
// there are changes.
func (t *Dir) Diff(ctx context.Context, base *format.Snapshot, dedup bool, extra []byte) (*Upload, error) {
	if err := t.rescan(t.ignoreRules()); err != nil {
		return nil, err
	}
	t.dropOdd(ctx)
	if err := checkTree(t.opts.Quota, t.nodes); err != nil {
		return nil, err
	}
	var unread []string
	for path, n := range t.nodes {
		if n.entry == nil {
			unread = append(unread, path)
		}
	}
	if len(unread) == 0 && len(t.nodes) == len(base.Entries) && t.untouched(base) {
		return &Upload{}, nil
	}
	slices.Sort(unread)
	known := format.EmptySnapshot.BlobFinder(0)
	if dedup {
		known = base.BlobFinder(len(unread))
	}
	p := t.content.NewPacker(ctx, t.ref.Tenant, known)
	entries, err := t.readPaths(ctx, p, unread)
	if err != nil {
		return nil, errors.Join(err, p.Finish())
	}
	up := &Upload{}
	adopt := func() {
		for i, e := range entries {
			n := t.nodes[unread[i]]
			if old := base.Find(e.Path); old.Same(e) {
				e = old
			}
			n.entry = e
		}
	}
	if len(extra) > 0 && t.willChange(base, unread, entries) {
		if up.Blobs, err = p.AddFile(bytes.NewReader(extra), int64(len(extra)), make([]byte, format.MaxBlob), nil); err != nil {
			return nil, errors.Join(err, p.Finish())
		}
	}
	if err := p.Flush(); err != nil {
		return nil, errors.Join(err, p.Finish())
	}
	adopt()
	up.wait = sync.OnceValue(func() error {
		err := p.Finish()
		if err != nil { // they are to be read again
			for _, path := range unread {
				t.nodes[path].entry = nil
			}
		}
		return err
	})
	up.Changes = t.changes(base)
	return up, nil
}

// untouched reports whether all nodes hold what was checked out.
func (t *Dir) untouched(base *format.Snapshot) bool {
	for _, e := range base.Entries {
		if n := t.nodes[e.Path]; n == nil || n.entry != e {
			return false
		}
	}
	return true
}

// willChange reports whether the commit is going to be one.
func (t *Dir) willChange(base *format.Snapshot, unread []string, entries []*format.Entry) bool {
	if len(t.nodes) != len(base.Entries) {
		return true
	}
	for i, e := range entries {
		if old := base.Find(unread[i]); old == nil || !old.Same(e) {
			return true
		}
	}
	for path, n := range t.nodes {
		if n.entry != nil && !n.entry.Same(base.Find(path)) {
			return true
		}
	}
	return false
}

// changes compares the tree with what was checked out.
func (t *Dir) changes(base *format.Snapshot) []format.Change {
	var changes []format.Change
	matched := 0
	for _, e := range base.Entries {
		n := t.nodes[e.Path]
		switch {
		case n == nil:
			changes = append(changes, format.Change{Path: e.Path})
			continue
		case n.entry != e && !n.entry.Same(e):
			changes = append(changes, format.Change{Path: e.Path, Entry: n.entry})
		}
		matched++
	}
	if matched < len(t.nodes) {
		for path, n := range t.nodes {
			if base.Find(path) == nil {
				changes = append(changes, format.Change{Path: path, Entry: n.entry})
			}
		}
		format.SortChanges(changes)
	}
	return changes
}

// Adopt notes that the tree's paths are those of snap where they hold the same.
func (t *Dir) Adopt(snap *format.Snapshot) {
	for _, e := range snap.Entries {
		if n := t.nodes[e.Path]; n != nil && n.entry != nil && n.entry.Same(e) {
			n.entry = e
		}
	}
}
