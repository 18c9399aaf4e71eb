package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Prefetched is a workspace's HEAD, read ahead of a Checkout.
type Prefetched struct {
	ref   Ref
	began time.Time
	head  format.Head
	etag  string
	err   error
}

// prefetchMaxAge is how old a prefetched HEAD may be. After a longer wait, Checkout reads HEAD again, so that the task
// begins with what others have committed since.
const prefetchMaxAge = time.Second

// Prefetch reads HEAD for a later Checkout. It sends one small request, and sometimes two more if there is no HEAD. If
// one fails or HEAD is lost, Checkout reads HEAD itself.
func (s *Store) Prefetch(ctx context.Context, ref Ref) *Prefetched {
	p := &Prefetched{ref: ref, began: time.Now()}
	if p.err = ref.Check(); p.err == nil {
		p.head, p.etag, p.err = s.repo.FindHead(ctx, ref)
	}
	return p
}

// Checkout makes the tree equal to the newest version by writing only the differences. If nothing has changed since
// the last Checkout or Commit, it sends one conditional GET, or no request if prefetched is recent. prefetched may be
// nil.
//
// Checkout removes files that are excluded from commits. After an error the tree is in an unknown state, which the next
// Checkout repairs. ErrDiskFull means that the disk is full even with an empty cache.
func (s *Store) Checkout(ctx context.Context, t *Tree, prefetched *Prefetched) (Version, error) {
	v, err := s.checkout(ctx, t, prefetched)
	if errors.Is(err, ErrDiskFull) { // the cache, which is empty now, may have filled the disk
		v, err = s.checkout(ctx, t, nil)
	}
	if err != nil {
		return Version{}, fmt.Errorf("check out %s: %w", t.ref, err)
	}
	return describe(v), nil
}

func (s *Store) checkout(ctx context.Context, t *Tree, p *Prefetched) (*repo.Version, error) {
	v, err := s.newest(ctx, t, p)
	if err != nil {
		return nil, err
	}
	t.views = nil
	if t.dir.Exact() && !t.inUse && v == t.base {
		t.inUse = true
		return v, nil
	}
	if err := t.materialise(ctx, v.Set); err != nil {
		return nil, err
	}
	t.base, t.inUse = v, true
	return v, nil
}

// newest returns the newest version. It uses the HEAD in p if p succeeded, is recent, and began after the HEAD of the
// tree's version was read.
func (s *Store) newest(ctx context.Context, t *Tree, p *Prefetched) (*repo.Version, error) {
	switch {
	case p == nil || p.err != nil || p.ref != t.ref || time.Since(p.began) > prefetchMaxAge,
		t.base != nil && !t.base.ReadAt.Before(p.began):
		return s.repo.Current(ctx, t.ref, t.base)
	case t.base != nil && t.base.ETag == p.etag:
		t.base.ReadAt = p.began
		return t.base, nil
	case t.base != nil && p.etag == "":
		return s.repo.Current(ctx, t.ref, t.base) // reports an error unless the workspace was purged
	}
	return s.repo.VersionOf(ctx, t.ref, p.head, p.etag)
}

// Revert brings the tree back to the version that was checked out, and removes excluded files. A Checkout must follow
// before the next Commit.
func (s *Store) Revert(ctx context.Context, t *Tree) error {
	if t.base == nil {
		return fmt.Errorf("revert %s: nothing is checked out", t.ref)
	}
	t.inUse = true
	if err := t.materialise(ctx, t.base.Set); err != nil {
		return fmt.Errorf("revert %s: %w", t.ref, err)
	}
	return nil
}

// Adopt takes the place of a Checkout, but leaves the directory as it is: a Commit then makes the workspace equal to
// the directory.
func (s *Store) Adopt(ctx context.Context, t *Tree) (Version, error) {
	v, err := s.repo.Current(ctx, t.ref, t.base)
	if err != nil {
		return Version{}, fmt.Errorf("adopt %s: %w", t.ref, err)
	}
	t.base, t.inUse = v, true
	return describe(v), nil
}

func describe(v *repo.Version) Version {
	return Version{v.Head.Generation, v.Head.Commit, v.Head.Time, v.Head.Files, v.Head.Bytes}
}
