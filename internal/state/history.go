package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// PathChange is one difference between two versions.
type PathChange struct {
	Path  string `json:"path"`
	Op    string `json:"op"`    // added, removed, modified
	Bytes int64  `json:"bytes"` // size afterwards; of a removed path, before
}

// Log returns the commits of a workspace, newest first, at most limit of them
// (0: all that are kept). Results of tasks are not read.
func (s *Store) Log(ctx context.Context, ref Ref, limit int) ([]Commit, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	var log []Commit
	err := s.walk(ctx, ref, func(_ link, m *manifest) bool {
		h := m.header
		log = append(log, Commit{
			Generation: h.Generation, ID: h.Commit, TaskID: h.TaskID, Attempt: h.Attempt, Time: h.Time, Message: h.Message,
			Changed: m.changed(), Conflicts: h.Conflicts,
		})
		return limit == 0 || len(log) < limit
	})
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", ref, err)
	}
	return log, nil
}

// walk visits the manifests that are kept, newest first, until visit returns false:
// from HEAD by parents, and what retention kept beyond the gap that it made.
func (s *Store) walk(ctx context.Context, ref Ref, visit func(link, *manifest) bool) error {
	h, _, err := s.readHead(ctx, ref, "")
	if err != nil || h.Manifest == nil {
		return err
	}
	next, last := h.Manifest, h.Generation+1
	for next != nil {
		l := *next
		m, err := s.headerOf(ctx, ref, l.Name, &l.Digest)
		if isDamage(err) {
			before, ok, failed := s.bridge(ctx, ref, l)
			if ok {
				next = before
				continue
			}
			if err = errors.Join(err, failed); failed == nil && errors.Is(err, ErrNotFound) && last <= h.Generation {
				break
			}
		}
		if err != nil {
			return err
		}
		if !visit(l, m) {
			return nil
		}
		last, next = m.header.Generation, m.header.Parent
	}
	kept, _, err := s.readPins(ctx, ref)
	if err != nil {
		return err
	}
	for _, k := range kept.older(last) {
		if k.generation() < h.Born {
			break // of a life that ended with Delete
		}
		m, err := s.headerOf(ctx, ref, k.Name, &k.Digest)
		if isDamage(err) && kept.lost(k.Name) != nil {
			continue
		}
		if err != nil {
			return err
		}
		if !visit(k, m) {
			return nil
		}
	}
	return nil
}

// find returns one version; generation 0 is the newest.
func (s *Store) find(ctx context.Context, ref Ref, generation int64) (*loaded, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	var at *link
	err := s.walk(ctx, ref, func(l link, m *manifest) bool {
		if generation == 0 || m.header.Generation == generation {
			at = &l
		}
		return at == nil && m.header.Generation > generation
	})
	if err != nil {
		return nil, err
	}
	if at == nil {
		if generation == 0 {
			return &loaded{&manifest{}, emptySnapshot, 0}, nil
		}
		return nil, fmt.Errorf("generation %d of %s: %w", generation, ref, ErrNotFound)
	}
	return s.load(ctx, ref, *at)
}

// Diff returns what changed from one generation to another; 0 is the newest.
func (s *Store) Diff(ctx context.Context, ref Ref, from, to int64) ([]PathChange, error) {
	a, err := s.find(ctx, ref, from)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	b, err := s.find(ctx, ref, to)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	var out []PathChange
	for _, c := range a.snap.diff(b.snap) {
		old := a.snap.find(c.path)
		switch {
		case c.entry == nil:
			out = append(out, PathChange{c.path, "removed", old.Size})
		case old == nil:
			out = append(out, PathChange{c.path, "added", c.entry.Size})
		default:
			out = append(out, PathChange{c.path, "modified", c.entry.Size})
		}
	}
	return out, nil
}

// Restore commits the tree of an older generation again. No content is copied,
// and nothing in between is lost.
func (s *Store) Restore(ctx context.Context, ref Ref, generation int64, message string) (Commit, error) {
	old, err := s.find(ctx, ref, generation)
	if err != nil {
		return Commit{}, fmt.Errorf("restore: %w", err)
	}
	return s.replace(ctx, ref, old.snap, message)
}

// Fork begins another workspace of the same tenant with a generation of this
// one; 0 is the newest. The other one must be new or deleted, else ErrConflict.
func (s *Store) Fork(ctx context.Context, ref Ref, generation int64, to string, message string) (Commit, error) {
	target := Ref{ref.Tenant, to}
	if err := target.check(); err != nil {
		return Commit{}, err
	}
	old, err := s.find(ctx, ref, generation)
	if err != nil {
		return Commit{}, fmt.Errorf("fork: %w", err)
	}
	h, _, err := s.readHead(ctx, target, "")
	if err != nil {
		return Commit{}, fmt.Errorf("fork: %w", err)
	}
	if h.Manifest != nil {
		return Commit{}, fmt.Errorf("fork: workspace %s exists: %w", target, ErrConflict)
	}
	return s.replace(ctx, target, old.snap, message)
}

// replace commits a whole tree whose content is in the tenant's packs.
func (s *Store) replace(ctx context.Context, ref Ref, target *snapshot, message string) (Commit, error) {
	for range objects.MaxRaces {
		v, err := s.current(ctx, ref, nil)
		if err != nil {
			return Commit{}, err
		}
		changes := v.snap.diff(target)
		if len(changes) == 0 {
			return Commit{Generation: v.head.Generation, ID: v.head.Commit, Time: v.head.Time, NoChange: true}, nil
		}
		p := &proposal{store: s, ref: ref, change: Change{Message: message}, upload: &upload{changes: changes}, base: v, on: v, id: newCommitID()}
		c, _, err := p.run(ctx)
		if !errors.Is(err, ErrConflict) {
			return c, err
		}
	}
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", objects.MaxRaces, objects.ErrTemporary)
}

// Delete makes the workspace empty and late commits fail with ErrDeleted. Its
// objects are removed by Collect after the grace time. A task that checks out
// afterwards begins anew.
func (s *Store) Delete(ctx context.Context, ref Ref) error {
	if err := ref.check(); err != nil {
		return err
	}
	id := newCommitID()
	for backoff := s.opts.Retry.NewBackoff(); ; {
		h, etag, err := s.readHead(ctx, ref, "")
		if err != nil || h.Manifest == nil {
			return err
		}
		next := &head{
			Generation: h.Generation + 1, Commit: id, Time: time.Now().UTC(), Deleted: true, Born: h.Born,
			Recent: h.Recent, Floor: h.Floor, FloorTime: h.FloorTime,
		}
		if _, err = s.swapHead(ctx, ref, etag, next); err == nil {
			s.mirrors.note(ref)
			return nil
		}
		if errors.Is(err, ErrConflict) || objects.Temporary(ctx, err) {
			err = backoff.Wait(ctx, err)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", ref, err)
		}
	}
}

// pins is the second mutable object of a workspace: versions that outlive their turn.
type pins struct {
	Pins []pin  `json:"pins,omitempty"`
	Kept []link `json:"kept,omitempty"` // by retention, newest first
	Lost []gap  `json:"lost,omitempty"` // what Repair has given up

	key string // that it was encrypted with
}

type pin struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	At         link   `json:"at"`
}

func (r Ref) pinsKey() string { return r.key("pins/HEAD") }

// older returns the links of generations below limit, newest first.
func (p *pins) older(limit int64) []link {
	var links []link
	for _, l := range p.Kept {
		if l.generation() < limit {
			links = append(links, l)
		}
	}
	for _, pin := range p.Pins {
		if pin.Generation < limit {
			links = append(links, pin.At)
		}
	}
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(b.Name, a.Name) })
	return slices.Compact(links)
}

func (s *Store) readPins(ctx context.Context, ref Ref) (pins, string, error) {
	var p pins
	obj, err := s.objects.Get(ctx, ref.pinsKey(), objects.GetOptions{})
	if errors.Is(err, ErrNotFound) {
		return p, "", nil
	}
	if err != nil {
		return p, "", err
	}
	plain, key, err := s.keys(ref.Tenant).unlock(ref.pinsThing(), obj.Data)
	if err != nil {
		return p, "", fmt.Errorf("%s: %w", ref.pinsKey(), err)
	}
	p.key = key
	body, ok := unseal(plain)
	if err = json.Unmarshal(body, &p); err != nil || !ok {
		return p, "", fmt.Errorf("%s: %w", ref.pinsKey(), objects.ErrCorrupt)
	}
	return p, obj.ETag, nil
}

// changePins applies change until it wins.
func (s *Store) changePins(ctx context.Context, ref Ref, change func(*pins)) error {
	for backoff := s.opts.Retry.NewBackoff(); ; {
		p, etag, err := s.readPins(ctx, ref)
		if err != nil {
			return err
		}
		change(&p)
		err = s.swapPins(ctx, ref, etag, p)
		if errors.Is(err, ErrConflict) || objects.Temporary(ctx, err) {
			err = backoff.Wait(ctx, err)
			if err == nil {
				continue
			}
		}
		return err
	}
}

func (s *Store) swapPins(ctx context.Context, ref Ref, etag string, p pins) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if data = s.keys(ref.Tenant).lock(ref.pinsThing(), seal(data)); len(data) > maxHead {
		return fmt.Errorf("%w: too many pins", ErrQuota)
	}
	_, err = s.objects.CompareAndSwap(ctx, ref.pinsKey(), etag, data)
	return err
}

// Pin keeps a generation (0: the newest) for good under a name, replacing what had it.
func (s *Store) Pin(ctx context.Context, ref Ref, name string, generation int64) error {
	if !slug.MatchString(name) {
		return fmt.Errorf("pin name %q is not a slug", name)
	}
	if err := ref.check(); err != nil {
		return err
	}
	store := s.fresh() // what is remembered may have left
	var at *link
	err := store.walk(ctx, ref, func(l link, m *manifest) bool {
		if generation == 0 || m.header.Generation == generation {
			at = &l
		}
		return at == nil && m.header.Generation > generation
	})
	if err == nil && at == nil {
		err = ErrNotFound
	}
	if err == nil {
		_, err = store.load(ctx, ref, *at)
	}
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return s.changePins(ctx, ref, func(p *pins) {
		p.Pins = slices.DeleteFunc(p.Pins, func(x pin) bool { return x.Name == name })
		p.Pins = append(p.Pins, pin{name, at.generation(), *at})
	})
}

// Unpin forgets a pin; one that does not exist counts as forgotten.
func (s *Store) Unpin(ctx context.Context, ref Ref, name string) error {
	return s.changePins(ctx, ref, func(p *pins) {
		p.Pins = slices.DeleteFunc(p.Pins, func(x pin) bool { return x.Name == name })
	})
}
