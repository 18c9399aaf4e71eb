package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// Prefetched is the HEAD of a workspace, read ahead of a Checkout.
type Prefetched struct {
	ref   Ref
	began time.Time
	head  format.Head
	etag  string
	err   error
}

// prefetchMaxAge is for how long a prefetched HEAD is used: a task that waited longer begins with what others have
// committed meanwhile.
const prefetchMaxAge = time.Second

// Prefetch reads HEAD for a Checkout to come. It makes one small request; Checkout reports its error.
func (s *Store) Prefetch(ctx context.Context, ref Ref) *Prefetched {
	p := &Prefetched{ref: ref, began: time.Now()}
	if p.err = ref.Check(); p.err == nil {
		p.head, p.etag, p.err = s.repo.ReadHead(ctx, ref, "")
	}
	return p
}

// Checkout brings the tree to the newest version by difference. When nothing
// changed since the last Checkout or Commit that is one conditional GET, and no request when prefetched, which may be
// nil, is recent.
// Files that are excluded from commits stay as long as the tree stays with its
// workspace and is not reverted. After an error the tree is in an unknown state,
// which the next Checkout repairs. ErrDiskFull is one such error: the cache has been emptied for the
// tree by then, and that was not enough.
func (s *Store) Checkout(ctx context.Context, t *Tree, prefetched *Prefetched) (Version, error) {
	v, err := s.checkout(ctx, t, prefetched)
	if errors.Is(err, ErrDiskFull) { // the cache, which is empty now, may have filled it
		v, err = s.checkout(ctx, t, nil)
	}
	if err != nil {
		return Version{}, fmt.Errorf("check out %s: %w", t.ref, err)
	}
	return public(v), nil
}

func (s *Store) checkout(ctx context.Context, t *Tree, p *Prefetched) (*repo.Version, error) {
	v, err := s.newest(ctx, t, p)
	if err != nil {
		return nil, err
	}
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

// newest returns the newest version, from p if that is usable: it succeeded, is recent, and is not older than what
// the tree holds.
func (s *Store) newest(ctx context.Context, t *Tree, p *Prefetched) (*repo.Version, error) {
	switch {
	case p == nil || p.err != nil || p.ref != t.ref || time.Since(p.began) > prefetchMaxAge,
		t.base != nil && !t.base.ReadAt.Before(p.began):
		return s.repo.Current(ctx, t.ref, t.base)
	case t.base != nil && t.base.ETag == p.etag:
		t.base.ReadAt = p.began
		return t.base, nil
	case t.base != nil && p.etag == "":
		return s.repo.Current(ctx, t.ref, t.base) // which finds out whether it was purged or lost
	}
	return s.repo.VersionOf(ctx, t.ref, p.head, p.etag)
}

// Revert makes the tree what it was at Checkout, and removes excluded files. It
// ends the use of the tree: the next task begins with Checkout.
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

// Adopt begins the work of a task on the newest version with the directory as it is: Commit makes the workspace
// what the directory holds.
func (s *Store) Adopt(ctx context.Context, t *Tree) (Version, error) {
	v, err := s.repo.Current(ctx, t.ref, t.base)
	if err != nil {
		return Version{}, fmt.Errorf("adopt %s: %w", t.ref, err)
	}
	t.base, t.inUse = v, true
	return public(v), nil
}

func public(v *repo.Version) Version {
	return Version{v.Head.Generation, v.Head.Commit, v.Head.Time, v.Head.Files, v.Head.Bytes}
}
