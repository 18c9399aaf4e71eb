package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
)

const (
	inlineResult = 16 << 10 // larger results are stored as blobs
	maxResult    = 64 << 20
	dedupAge     = 12 * time.Hour // how long content of an old version may be referred to; below the grace of collections
)

// Commit makes the tree's content the newest version, merged with what others
// committed since Checkout. It is atomic, and happens at most once per task id:
// if another attempt has committed, its result is returned with Already set.
//
// A path that both sides changed is a *ConflictError, unless it is state.json or
// a JSON file below state/ and the changes are to different top-level keys.
// ErrQuota, ErrDeleted: nothing was written. After any other error the commit
// may have happened; ask Applied, or call Commit again.
// Every Commit needs a Checkout before it. After NoChange, or a commit that
// needed no merge, the next Checkout costs one conditional GET.
func (s *Store) Commit(ctx context.Context, t *Tree, c Change) (Commit, error) {
	switch {
	case t.base == nil || !t.lent:
		return Commit{}, fmt.Errorf("commit %s: nothing is checked out", t.ref)
	case len(c.TaskID) > maxTaskID:
		return Commit{}, fmt.Errorf("commit %s: task id of %d bytes, limit is %d", t.ref, len(c.TaskID), maxTaskID)
	case len(c.Result) > maxResult:
		return Commit{}, fmt.Errorf("commit %s: result of %d bytes, limit is %d", t.ref, len(c.Result), maxResult)
	}
	out, err := s.commit(ctx, t, c)
	if err != nil {
		return Commit{}, fmt.Errorf("commit %s: %w", t.ref, s.diskError(ctx, err))
	}
	return out, nil
}

func (s *Store) commit(ctx context.Context, t *Tree, c Change) (Commit, error) {
	if c.TaskID != "" && (c.Attempt > 1 || !c.Since.IsZero()) {
		if done, err := s.findTask(ctx, t.ref, t.base.head, c.TaskID, untilTime(c.Since)); done != nil || err != nil {
			return s.already(t, done), err
		}
	}
	up, err := s.collect(ctx, t, c)
	if err != nil {
		return Commit{}, err
	}
	if len(up.changes) == 0 {
		if err := up.stored(); err != nil {
			return Commit{}, err
		}
		return s.unchanged(ctx, t, c)
	}
	defer func() { _ = up.stored() }() // whatever happens, nothing is left running
	p := &proposal{store: s, ref: t.ref, change: c, upload: up, base: t.base, on: t.base, id: newCommitID()}
	out, v, err := p.run(ctx)
	if err != nil && !errors.Is(err, ErrDeleted) {
		return Commit{}, err // the caller may try again, keep both, or revert
	}
	// The directory is as it was looked at. It is a version only if nothing
	// of others came in and the commit was ours.
	t.lent, t.base = false, nil
	if err == nil && v != nil && !p.merged {
		t.base = v
		if p.fold != nil {
			t.adopt(v.snap)
		}
	}
	return out, err
}

// unchanged ends a task that changed nothing. A first attempt needs no request.
func (s *Store) unchanged(ctx context.Context, t *Tree, c Change) (Commit, error) {
	if c.TaskID != "" && c.Attempt > 1 {
		v, err := s.current(ctx, t.ref, t.base)
		if err != nil {
			return Commit{}, err
		}
		if done, err := s.findTask(ctx, t.ref, v.head, c.TaskID, untilGeneration(t.base.head.Generation)); done != nil || err != nil {
			return s.already(t, done), err
		}
	}
	t.lent = false
	return Commit{
		Generation: t.base.head.Generation, ID: t.base.head.Commit, Time: t.base.head.Time, NoChange: true, Result: c.Result,
		TaskID: c.TaskID, Attempt: c.Attempt, Message: c.Message,
	}, nil
}

func (s *Store) already(t *Tree, done *Commit) Commit {
	if done == nil {
		return Commit{}
	}
	t.base = nil
	done.Already = true
	return *done
}

// proposal is a commit on its way.
type proposal struct {
	store  *Store
	ref    Ref
	change Change
	upload *upload
	base   *version // what the task saw
	on     *version // what the commit builds on
	id     string
	fold   *fold // of packs of on; nil: none
	full   bool  // the manifest is no delta

	snap      *snapshot // of the version that build made last
	changes   []change  // to make to on
	conflicts []string
	merged    bool
	unchecked bool // against the quota
}

// run tries until the commit is in, or cannot be. The returned version is nil
// when another attempt's commit counts.
func (p *proposal) run(ctx context.Context) (Commit, *version, error) {
	if !p.merged {
		p.changes = p.upload.changes
	}
	if p.fold == nil {
		p.fold = p.store.foldSmall(ctx, p.ref.Tenant, p.on.snap)
	}
	defer func() { _ = p.fold.stored() }()
	for backoff := p.store.opts.Retry.NewBackoff(); ; {
		if err := p.settle(ctx, backoff); err != nil {
			return Commit{}, nil, err
		}
		next, man, data, err := p.build()
		if err != nil {
			return Commit{}, nil, err
		}
		if err := p.put(ctx, next.Manifest, data); err != nil {
			return Commit{}, nil, err
		}
		etag, err := p.swap(ctx, next)
		if err == nil {
			return p.done(ctx, next, etag, man, data)
		}
		out, v, failed := p.lost(ctx, next, man, data, err)
		if out != nil || failed != nil {
			return deref(out), v, failed
		}
		if err := backoff.Wait(ctx, err); err != nil {
			return Commit{}, nil, err
		}
	}
}

// settle waits for a HEAD that is about to be deleted, and lets a workspace that has none begin where
// those before it ended.
func (p *proposal) settle(ctx context.Context, backoff *objects.Backoff) error {
	for p.on.head.doomed() {
		if err := backoff.Wait(ctx, fmt.Errorf("swap %s: the deleted workspace is being removed", p.ref.headKey())); err != nil {
			return err
		}
		h, etag, err := p.store.readHead(ctx, p.ref, "")
		if err != nil {
			return err
		}
		if err := p.follow(ctx, h, etag); err != nil {
			return err
		}
	}
	if p.on.etag != "" || p.on.head.Generation > 0 {
		return nil
	}
	f, _, err := p.store.readFloor(ctx, p.ref.Tenant)
	if err != nil || f.Generation == 0 {
		return err
	}
	on := *p.on
	on.head.Generation, on.head.Born = f.Generation, f.Generation+1
	p.on = &on
	return nil
}

// follow builds on another HEAD than before. ErrDeleted: what the task saw is no more.
func (p *proposal) follow(ctx context.Context, h head, etag string) (err error) {
	if p.outlived(h, etag) {
		return ErrDeleted
	}
	if p.on, err = p.store.versionOf(ctx, p.ref, h, etag); err != nil {
		return err
	}
	return p.rebase(ctx)
}

// outlived reports whether what the task saw was deleted. A tombstone that it saw and that is being
// purged, or was, is what it saw: nothing.
func (p *proposal) outlived(h head, etag string) bool {
	base := &p.base.head
	if base.Deleted && (etag == "" || h.Deleted && h.Generation == base.Generation) {
		return false
	}
	return h.Deleted || h.Born > base.Generation+1 || h.Generation < base.Generation
}

// put stores the manifest, beside the content that is still on its way. A manifest that no HEAD names
// is nothing, so either may be there first.
func (p *proposal) put(ctx context.Context, l *link, data []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(p.upload.stored)
	g.Go(p.fold.stored)
	g.Go(func() error { return p.store.objects.Put(ctx, p.ref.manifestKey(l.Name), data, l.Digest) })
	return g.Wait()
}

func deref(c *Commit) Commit {
	if c == nil {
		return Commit{}
	}
	return *c
}

func (p *proposal) swap(ctx context.Context, next *head) (string, error) {
	return p.store.swapHead(ctx, p.ref, p.on.etag, next)
}

func (p *proposal) done(ctx context.Context, h *head, etag string, man *manifest, data []byte) (Commit, *version, error) {
	p.store.cache.put(h.Manifest.Digest, data)
	p.store.opts.Log.InfoContext(ctx, "workspace committed", "workspace", p.ref.String(), "generation", h.Generation,
		"task_id", p.change.TaskID, "changed", len(p.upload.changes), "conflicts", len(p.conflicts), "merged", p.merged)
	p.store.mirrors.note(p.ref)
	v := &version{head: *h, etag: etag, man: man, snap: p.snap, size: int64(len(data)), at: time.Now()}
	return p.commit(h), v, nil
}

func (p *proposal) commit(h *head) Commit {
	return Commit{
		Generation: h.Generation, ID: h.Commit, TaskID: p.change.TaskID, Attempt: p.change.Attempt, Time: h.Time,
		Message: p.change.Message, Changed: changedPaths(p.changes), Conflicts: p.conflicts, Result: p.change.Result,
	}
}

// lost decides what a swap that did not answer "done" means, by reading HEAD
// back. With neither a commit nor an error it is to be tried again.
func (p *proposal) lost(ctx context.Context, next *head, man *manifest, data []byte, cause error) (*Commit, *version, error) {
	if !errors.Is(cause, ErrConflict) && !objects.Temporary(ctx, cause) {
		return nil, nil, cause
	}
	h, etag, err := p.store.readHead(ctx, p.ref, "")
	if err != nil {
		return nil, nil, errors.Join(cause, err)
	}
	if h.Commit == p.id { // it was applied, the answer was lost
		out, v, err := p.done(ctx, next, etag, man, data)
		return &out, v, err
	}
	if h.Commit == p.on.head.Commit {
		return nil, nil, nil // not applied
	}
	if p.outlived(h, etag) {
		return nil, nil, ErrDeleted
	}
	if p.change.TaskID != "" {
		found, err := p.store.findTask(ctx, p.ref, h, p.change.TaskID, untilGeneration(p.base.head.Generation))
		if err != nil {
			return nil, nil, err
		}
		if found != nil && found.ID == p.id { // applied, and others have built on it
			found.Conflicts = p.conflicts
			p.merged = true
			return found, &version{}, nil
		}
		if found != nil {
			found.Already = true
			return found, nil, nil
		}
	}
	return nil, nil, p.follow(ctx, h, etag)
}

// rebase merges the task's changes onto p.on.
func (p *proposal) rebase(ctx context.Context) error {
	if err := p.upload.stored(); err != nil { // a merge reads it
		return err
	}
	merged := p.store.newPacker(ctx, p.ref.Tenant, p.on.snap.blobFinder(0))
	m := &merger{
		base: p.base.snap, theirs: p.on.snap, suffix: p.change.TaskID,
		read: func(e *entry) ([]byte, error) { return p.store.readEntry(ctx, p.ref.Tenant, e) },
		write: func(e *entry, data []byte) (*entry, error) {
			blobs, err := merged.addAll(strings.NewReader(string(data)), int64(len(data)), make([]byte, len(data)), nil)
			out := *e
			out.Blobs, out.Size = blobs, int64(len(data))
			return &out, err
		},
	}
	changes, conflicts, err := m.merge(p.upload.changes)
	if err = errors.Join(err, merged.finish()); err != nil {
		return err
	}
	if len(conflicts) > 0 && !p.change.KeepBoth {
		return &ConflictError{Ref: p.ref, Paths: conflicts}
	}
	p.changes, p.conflicts, p.merged = changes, conflicts, true
	return nil
}

// readEntry returns the content of a small file.
func (s *Store) readEntry(ctx context.Context, tenant string, e *entry) ([]byte, error) {
	out := make([]byte, e.Size)
	wants := make([]want, len(e.Blobs))
	var offset int64
	for i := range e.Blobs {
		wants[i] = want{&e.Blobs[i], 0, offset}
		offset += e.Blobs[i].Raw
	}
	err := s.fetch(ctx, tenant, wants, func(_ int, w want, data []byte) error {
		copy(out[w.offset:], data)
		return nil
	})
	return out, err
}
