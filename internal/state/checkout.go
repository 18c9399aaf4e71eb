package state

import (
	"context"
	"errors"
	"fmt"
)

// Checkout brings the tree to the newest version by difference. When nothing
// changed since the last Checkout or Commit that is one conditional GET.
// Files that are excluded from commits stay as long as the tree stays with its
// workspace and is not reverted. After an error the tree is in an unknown state,
// which the next Checkout repairs. ErrDiskFull is one such error: the cache has been emptied for the
// tree by then, and that was not enough.
func (s *Store) Checkout(ctx context.Context, t *Tree) (Version, error) {
	v, err := s.checkout(ctx, t)
	if errors.Is(err, ErrDiskFull) { // it may have been full of the cache, which has gone
		v, err = s.checkout(ctx, t)
	}
	if err != nil {
		return Version{}, fmt.Errorf("check out %s: %w", t.ref, err)
	}
	return v.public(), nil
}

func (s *Store) checkout(ctx context.Context, t *Tree) (*version, error) {
	v, err := s.current(ctx, t.ref, t.base)
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
