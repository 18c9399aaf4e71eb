package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Applied returns the commit of a task, or nil if the task has not committed
// since the given time. A zero time searches all of the history that is kept.
func (s *Store) Applied(ctx context.Context, ref Ref, taskID string, since time.Time) (*Commit, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	h, _, err := s.readHead(ctx, ref, "")
	if err == nil {
		var c *Commit
		if c, err = s.findTask(ctx, ref, h, taskID, untilTime(since)); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("look for task %s in %s: %w", taskID, ref, err)
}

// until says where a walk into the past may end: at a commit for which it is true.
type until func(generation int64, at time.Time) bool

func untilGeneration(last int64) until {
	return func(generation int64, _ time.Time) bool { return generation <= last }
}

// untilTime allows for clocks of workers that differ.
func untilTime(since time.Time) until {
	return func(_ int64, at time.Time) bool { return at.Before(since.Add(-clockSkew)) }
}

// findTask looks for a task's commit: in the list that HEAD carries, and behind
// that manifest by manifest.
func (s *Store) findTask(ctx context.Context, ref Ref, h head, taskID string, end until) (*Commit, error) {
	for _, r := range h.Recent {
		if r.Task == taskID {
			return s.commitAt(ctx, ref, r)
		}
	}
	if h.Floor == 0 || end(h.Floor, h.FloorTime) || h.Manifest == nil {
		return nil, nil
	}
	name := h.Manifest.Name
	digest := &h.Manifest.Digest
	if len(h.Recent) > 0 {
		name, digest = h.Recent[0].manifest(), nil
	}
	for {
		m, err := s.headerOf(ctx, ref, name, digest)
		if errors.Is(err, ErrNotFound) {
			return nil, nil // older than what is kept
		}
		if err != nil {
			return nil, err
		}
		if m.header.TaskID == taskID {
			return s.toCommit(ctx, ref, m)
		}
		if m.header.Parent == nil || end(m.header.Generation, m.header.Time) {
			return nil, nil
		}
		name, digest = m.header.Parent.Name, &m.header.Parent.Digest
	}
}

func (s *Store) commitAt(ctx context.Context, ref Ref, r recent) (*Commit, error) {
	m, err := s.headerOf(ctx, ref, r.manifest(), nil)
	if isDamage(err) { // collected, or lost: that it was applied is all that is left
		return &Commit{Generation: r.Generation, TaskID: r.Task, Time: time.Unix(r.Unix, 0).UTC()}, nil
	}
	if err != nil {
		return nil, err
	}
	return s.toCommit(ctx, ref, m)
}

// headerOf reads a manifest. Without a digest its name, which begins with the
// digest's first half, must do.
func (s *Store) headerOf(ctx context.Context, ref Ref, name string, digest *objects.Digest) (*manifest, error) {
	if v := s.versions.get(ref.manifestKey(name)); v != nil {
		return v.man, nil
	}
	if digest != nil {
		m, _, err := s.decode(ctx, ref, link{name, *digest}, false)
		return m, err
	}
	found, err := s.readNamed(ctx, ref, name)
	if err != nil {
		return nil, err
	}
	return found.man, nil
}

// readNamed reads the manifest of a name from the store.
func (s *Store) readNamed(ctx context.Context, ref Ref, name string) (*named, error) {
	key := ref.manifestKey(name)
	obj, err := s.objects.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return nil, err
	}
	l := link{name, objects.Sum(obj.Data)}
	if l.digits() != manifestDigits(l.Digest) {
		return nil, fmt.Errorf("%s: %w: has another digest", key, objects.ErrCorrupt)
	}
	plain, lockedBy, err := s.keys(ref.Tenant).unlock(ref.manifestThing(), obj.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	m, err := decodeManifest(plain, false)
	if err == nil && m.header.Generation != l.generation() {
		err = fmt.Errorf("%w: is generation %d", objects.ErrCorrupt, m.header.Generation)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	m.key = lockedBy
	return &named{l, m, int64(len(obj.Data))}, nil
}

// named is a manifest with its link and its stored bytes.
type named struct {
	link link
	man  *manifest
	size int64
}

// toCommit returns what a manifest says about its commit.
func (s *Store) toCommit(ctx context.Context, ref Ref, m *manifest) (*Commit, error) {
	result, err := s.readResult(ctx, ref.Tenant, m)
	if err != nil {
		return nil, err
	}
	h := m.header
	return &Commit{
		Generation: h.Generation, ID: h.Commit, TaskID: h.TaskID, Attempt: h.Attempt, Time: h.Time, Message: h.Message,
		Changed: m.changed(), Conflicts: h.Conflicts, Result: result,
	}, nil
}

// changed returns the paths that the commit changed.
func (m *manifest) changed() []string {
	if m.full() && m.header.Parent != nil || m.header.Moved > 0 {
		return m.header.Changed
	}
	return changedPaths(m.changes)
}
