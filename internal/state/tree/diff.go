package tree

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Upload describes what changed in a directory. The new content is being uploaded, unless it is Held.
type Upload struct {
	Changes []format.Change // to the version that was materialised
	Blobs   []format.Blob   // blobs of extra, see Diff
	// Rewritten are the files that were written with the content that they had, sorted.
	Rewritten []string
	// Held is the new content, if it is small and not being uploaded. Wait uploads it unless a HEAD carries it.
	Held *content.Held

	wait func() error // nil if all content is stored
}

// Wait waits until all content is stored. Only then may a HEAD refer to it.
func (u *Upload) Wait() error {
	if u.wait == nil {
		return nil
	}
	return u.wait()
}

// Diff finds what changed since base was materialised, checks the quota, and begins to upload new content. With dedup,
// content of base is not uploaded again. If there are changes, extra is uploaded too. New content of at most hold bytes
// is held, see Upload.Held.
func (t *Dir) Diff(
	ctx context.Context, base *format.EntrySet, dedup bool, extra []byte, hold int,
) (*Upload, error) {
	if t.untouchedSince(base) {
		return &Upload{}, nil
	}
	if err := t.rescan(); err != nil {
		return nil, err
	}
	t.dropSpecial(ctx)
	t.setLayoutAside(base)
	if err := checkTree(t.opts.Quota, t.nodes); err != nil {
		return nil, err
	}
	var unread []string
	for path, n := range t.nodes {
		if n.entry == nil {
			unread = append(unread, path)
		}
	}
	if len(unread) == 0 && len(t.nodes) == len(base.Entries) && t.hasEntriesOf(base) {
		t.unchanged = base
		return &Upload{}, nil
	}
	slices.Sort(unread)
	known := format.EmptySet.BlobFinder(0)
	if dedup {
		known = base.BlobFinder(len(unread))
	}
	p := t.content.NewPacker(ctx, t.ref.Tenant, known)
	p.Hold(hold)
	entries, err := t.readPaths(ctx, p, unread)
	if err != nil {
		return nil, errors.Join(err, p.Finish())
	}
	up := &Upload{}
	if len(extra) > 0 && t.differsFrom(base, unread, entries) {
		up.Blobs, err = p.AddFile(bytes.NewReader(extra), int64(len(extra)), make([]byte, format.MaxBlob), nil)
		if err != nil {
			return nil, errors.Join(err, p.Finish())
		}
	}
	if err := p.Flush(); err != nil {
		return nil, errors.Join(err, p.Finish())
	}
	for i, e := range entries {
		n := t.nodes[unread[i]]
		if old := base.Find(e.Path); old.Same(e) {
			e = old
			t.retimed = t.retimed || n.isRetimed(e)
			if n.touched && e.Kind == format.KindFile {
				up.Rewritten = append(up.Rewritten, unread[i])
			}
		}
		n.entry = e
	}
	up.wait = sync.OnceValue(func() error {
		err := p.Finish()
		if err != nil { // the next Diff must read them again
			for _, path := range unread {
				t.nodes[path].entry = nil
			}
		}
		return err
	})
	up.Held, up.Changes = p.Held(), t.changes(base)
	if len(up.Changes) == 0 {
		t.unchanged = base
	}
	return up, nil
}

// minWatched is the number of paths from which on a scan takes longer than a call of Dir.watch.
const minWatched = 256

// untouchedSince reports whether the last Diff found no change to base, and nothing was written to the directory since
// then.
func (t *Dir) untouchedSince(base *format.EntrySet) bool {
	same := t.known && t.unchanged == base && len(t.nodes) >= minWatched && t.watch != nil && t.watch()
	if !same {
		t.unchanged = nil
	}
	return same
}

// hasEntriesOf reports whether the node of every path of base still has the entry of base.
func (t *Dir) hasEntriesOf(base *format.EntrySet) bool {
	for _, e := range base.Entries {
		if n := t.nodes[e.Path]; n == nil || n.entry != e {
			return false
		}
	}
	return true
}

// differsFrom reports whether the directory differs from base. entries are what was read at the paths unread.
func (t *Dir) differsFrom(base *format.EntrySet, unread []string, entries []*format.Entry) bool {
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

// changes returns the differences of the nodes from base.
func (t *Dir) changes(base *format.EntrySet) []format.Change {
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

// Adopt replaces the nodes' entries with equal ones of set, so that later comparisons need to compare pointers only.
func (t *Dir) Adopt(set *format.EntrySet) {
	for _, e := range set.Entries {
		if n := t.nodes[e.Path]; n != nil && n.entry != nil && n.entry.Same(e) {
			n.entry = e
		}
	}
}
