package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Checkout brings the tree to the newest version by difference. When nothing
// changed since the last Checkout or Commit that is one conditional GET.
// Files that are excluded from commits stay as long as the tree stays with its
// workspace and is not reverted. After an error the tree is in an unknown state,
// which the next Checkout repairs. ErrDiskFull is one such error: the cache has been emptied for the
// tree by then, and that was not enough.
func (s *Store) Checkout(ctx context.Context, t *Tree) (Version, error) {
	return s.CheckoutSeen(ctx, t, nil)
}

// A Glance is what was the newest version of a workspace at a moment.
type Glance struct {
	ref   Ref
	began time.Time
	head  head
	etag  string
	err   error
}

// glanceAge is for how long a glance is good: a task that waited longer is to begin with what others have
// committed meanwhile.
const glanceAge = time.Second

// Glance looks at the newest version of a workspace, for a checkout to come. It makes one small
// request.
func (s *Store) Glance(ctx context.Context, ref Ref) *Glance {
	g := &Glance{ref: ref, began: time.Now()}
	if g.err = ref.check(); g.err == nil {
		g.head, g.etag, g.err = s.readHead(ctx, ref, "")
	}
	return g
}

// CheckoutSeen is Checkout to the version that was the newest at the glance, or to a later one; it
// saves the request when the glance is good. nil: none.
func (s *Store) CheckoutSeen(ctx context.Context, t *Tree, g *Glance) (Version, error) {
	v, err := s.checkout(ctx, t, g)
	if errors.Is(err, ErrDiskFull) { // it may have been full of the cache, which has gone
		v, err = s.checkout(ctx, t, nil)
	}
	if err != nil {
		return Version{}, fmt.Errorf("check out %s: %w", t.ref, err)
	}
	return v.public(), nil
}

func (s *Store) checkout(ctx context.Context, t *Tree, g *Glance) (*version, error) {
	v, err := s.newest(ctx, t, g)
	if err != nil {
		return nil, err
	}
	if t.known && !t.lent && v == t.base {
		t.lent = true
		return v, nil
	}
	if err := s.bring(ctx, t, v.snap); err != nil {
		return nil, err
	}
	t.base, t.lent = v, true
	return v, nil
}

// newest is current, by a glance that says something about this tree: one that failed, that was long ago, or
// that is older than what the tree holds, does not.
func (s *Store) newest(ctx context.Context, t *Tree, g *Glance) (*version, error) {
	switch {
	case g == nil || g.err != nil || g.ref != t.ref || time.Since(g.began) > glanceAge || t.base != nil && !t.base.at.Before(g.began):
		return s.current(ctx, t.ref, t.base)
	case t.base != nil && t.base.etag == g.etag:
		t.base.at = g.began
		return t.base, nil
	case t.base != nil && g.etag == "":
		return s.current(ctx, t.ref, t.base) // which finds out whether it may be gone
	}
	return s.versionOf(ctx, t.ref, g.head, g.etag)
}

// Revert makes the tree what it was at Checkout, and removes excluded files. It
// ends the use of the tree: the next task begins with Checkout.
func (s *Store) Revert(ctx context.Context, t *Tree) error {
	if t.base == nil {
		return fmt.Errorf("revert %s: nothing is checked out", t.ref)
	}
	t.lent = true
	if err := s.bring(ctx, t, t.base.snap); err != nil {
		return fmt.Errorf("revert %s: %w", t.ref, err)
	}
	return nil
}

// bring makes the directory hold target, looking at it first if that is not known.
func (s *Store) bring(ctx context.Context, t *Tree, target *snapshot) error {
	base := t.base
	t.base = nil // until the end
	if !t.known || t.lent {
		if err := s.look(t, s.ignoreRules(t)); err != nil {
			return err
		}
		for _, path := range t.excluded {
			if err := t.remove(path); err != nil {
				t.known = false
				return err
			}
		}
		t.excluded = nil
	}
	if err := s.reconcile(ctx, t, target); err != nil {
		return err
	}
	t.base = base
	return nil
}
