package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// upload is what a task did to the tree, with all content in the store.
type upload struct {
	changes []change // against what was checked out
	result  []blob   // of a large Change.Result

	wait func() error // nil: all content is stored
}

// stored waits until the content is in the store. Only then may a HEAD name it.
func (u *upload) stored() error {
	if u.wait == nil {
		return nil
	}
	return u.wait()
}

// collect finds what changed since the checkout, checks the quota, and only
// then uploads content, which may still be on its way when it returns.
func (s *Store) collect(ctx context.Context, t *Tree, c Change) (*upload, error) {
	if err := s.look(t, s.ignoreRules(t)); err != nil {
		return nil, err
	}
	s.dropOdd(ctx, t)
	if err := s.opts.Quota.checkTree(t.nodes); err != nil {
		return nil, err
	}
	var unread []string
	for path, n := range t.nodes {
		if n.entry == nil {
			unread = append(unread, path)
		}
	}
	if len(unread) == 0 && len(t.nodes) == len(t.base.snap.entries) && s.untouched(t) {
		return &upload{}, nil
	}
	slices.Sort(unread)
	known := emptySnapshot.blobFinder(0)
	if time.Since(t.base.at) < dedupAge {
		known = t.base.snap.blobFinder(len(unread))
	}
	p := s.newPacker(ctx, t.ref.Tenant, known)
	entries, err := s.readPaths(ctx, t, p, unread)
	if err != nil {
		return nil, errors.Join(err, p.finish())
	}
	up := &upload{}
	adopt := func() {
		for i, e := range entries {
			n := t.nodes[unread[i]]
			if old := t.base.snap.find(e.Path); old.same(e) {
				e = old
			}
			n.entry = e
		}
	}
	if len(c.Result) > inlineResult && s.willChange(t, unread, entries) {
		if up.result, err = p.addAll(bytes.NewReader(c.Result), int64(len(c.Result)), make([]byte, maxBlob), nil); err != nil {
			return nil, errors.Join(err, p.finish())
		}
	}
	if err := p.flush(); err != nil {
		return nil, errors.Join(err, p.finish())
	}
	adopt()
	up.wait = sync.OnceValue(func() error {
		err := p.finish()
		if err != nil { // they are to be read again
			for _, path := range unread {
				t.nodes[path].entry = nil
			}
		}
		return err
	})
	up.changes = t.changes()
	return up, nil
}

// untouched reports whether all nodes hold what was checked out.
func (s *Store) untouched(t *Tree) bool {
	for _, e := range t.base.snap.entries {
		if n := t.nodes[e.Path]; n == nil || n.entry != e {
			return false
		}
	}
	return true
}

// willChange reports whether the commit is going to be one.
func (s *Store) willChange(t *Tree, unread []string, entries []*entry) bool {
	if len(t.nodes) != len(t.base.snap.entries) {
		return true
	}
	for i, e := range entries {
		if old := t.base.snap.find(unread[i]); old == nil || !old.same(e) {
			return true
		}
	}
	for path, n := range t.nodes {
		if n.entry != nil && !n.entry.same(t.base.snap.find(path)) {
			return true
		}
	}
	return false
}

// changes compares the tree with what was checked out.
func (t *Tree) changes() []change {
	var changes []change
	matched := 0
	for _, e := range t.base.snap.entries {
		n := t.nodes[e.Path]
		switch {
		case n == nil:
			changes = append(changes, change{path: e.Path})
			continue
		case n.entry != e && !n.entry.same(e):
			changes = append(changes, change{e.Path, n.entry})
		}
		matched++
	}
	if matched < len(t.nodes) {
		for path, n := range t.nodes {
			if t.base.snap.find(path) == nil {
				changes = append(changes, change{path, n.entry})
			}
		}
		sortChanges(changes)
	}
	return changes
}

// dropOdd forgets sockets, pipes and devices: they cannot be stored.
func (s *Store) dropOdd(ctx context.Context, t *Tree) {
	for path, n := range t.nodes {
		if n.stat.Kind == kindOdd {
			s.opts.Log.WarnContext(ctx, "not a file, directory or link: not committed", "workspace", t.ref.String(), "path", path)
			t.excluded = append(t.excluded, path)
			delete(t.nodes, path)
		}
	}
}

// readPaths stores the content of paths and returns their entries.
func (s *Store) readPaths(ctx context.Context, t *Tree, p *packer, paths []string) ([]*entry, error) {
	entries := make([]*entry, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	workers := fetchWorkers()
	next := make(chan int)
	g.Go(func() error {
		defer close(next)
		for i := range paths {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		g.Go(func() error {
			r := pathReader{store: s, tree: t, packer: p}
			defer r.close()
			for i := range next {
				var err error
				if entries[i], err = r.read(paths[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return entries, g.Wait()
}

// pathReader turns paths of the tree into entries, one at a time.
type pathReader struct {
	store        *Store
	tree         *Tree
	packer       *packer
	buf, scratch []byte
}

func (r *pathReader) close() {
	r.store.buffers.Put(&r.buf)
	r.store.buffers.Put(&r.scratch)
}

func (r *pathReader) read(path string) (*entry, error) {
	st := r.tree.nodes[path].stat
	e := &entry{Path: path, Kind: st.Kind, Mode: st.Mode}
	switch st.Kind {
	case kindFile, kindOdd: // opened below, which refuses the odd
	case kindDir:
		return e, nil
	case kindLink:
		target, err := r.tree.root.Readlink(path)
		if err != nil {
			return nil, fmt.Errorf("read link: %w", err)
		}
		e.Link, e.Mode = target, 0o777
		return e, e.check()
	}
	f, err := r.tree.openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("path %q vanished while it was committed", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e.Size, e.MTime = st.Size, st.MTime
	r.grow(min(st.Size, maxBlob))
	if e.Blobs, err = r.packer.addAll(f, st.Size, r.buf, r.scratch); err != nil {
		return nil, fmt.Errorf("path %q: %w", path, err)
	}
	return e, nil
}

func (r *pathReader) grow(n int64) {
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, 0, max(n, 64<<10))
	}
	if int64(cap(r.scratch)) < n {
		r.scratch = make([]byte, 0, max(n, 64<<10))
	}
}
