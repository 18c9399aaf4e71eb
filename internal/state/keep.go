package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// kept is an object that keeps one version until a time, whatever retention says: what somebody
// was promised. Its key is k/<generation>-<unix time until>; it is written once.
type kept struct {
	At link `json:"at"`
}

func (r Ref) keptKey(generation, until int64) string {
	return r.key(fmt.Sprintf("k/%012d-%d", generation, until))
}

// keptUntil reads the part of a key behind k/.
func keptUntil(name string) (generation int64, until time.Time, ok bool) {
	g, u, found := strings.Cut(name, "-")
	generation, err1 := strconv.ParseInt(g, 10, 64)
	unix, err2 := strconv.ParseInt(u, 10, 64)
	return generation, time.Unix(unix, 0), found && errors.Join(err1, err2) == nil
}

// Keep has collections spare a version until a time, with all that it needs. Deleting the workspace
// ends that. It may be repeated.
func (s *Store) Keep(ctx context.Context, ref Ref, generation int64, until time.Time) error {
	at, err := s.linkOf(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("keep %s: %w", ref, err)
	}
	data, err := json.Marshal(kept{at})
	if err != nil {
		return err
	}
	return s.objects.Put(ctx, ref.keptKey(generation, until.Unix()), data, objects.Sum(data))
}

// linkOf finds the manifest of a generation in the history.
func (s *Store) linkOf(ctx context.Context, ref Ref, generation int64) (link, error) {
	var at *link
	err := s.walk(ctx, ref, func(l link, m *manifest) bool {
		if m.header.Generation == generation {
			at = &l
		}
		return at == nil && m.header.Generation > generation
	})
	if err == nil && at == nil {
		err = fmt.Errorf("generation %d: %w", generation, ErrNotFound)
	}
	if err != nil {
		return link{}, err
	}
	return *at, nil
}

// OpenKept is Open for a version that Keep spared, which may be in no history any more.
func (s *Store) OpenKept(ctx context.Context, ref Ref, generation int64, path string) (io.ReadSeeker, FileInfo, error) {
	f, info, err := s.Open(ctx, ref, generation, path)
	if !errors.Is(err, ErrNotFound) {
		return f, info, err
	}
	prefix := ref.key(fmt.Sprintf("k/%012d-", generation))
	for o, failed := range s.objects.List(ctx, prefix, "") {
		if failed != nil {
			return nil, FileInfo{}, failed
		}
		l, failed := s.readKept(ctx, o.Key)
		if errors.Is(failed, ErrNotFound) {
			continue
		}
		if failed != nil {
			return nil, FileInfo{}, failed
		}
		v, failed := s.load(ctx, ref, l)
		if failed != nil {
			return nil, FileInfo{}, fmt.Errorf("open %q: %w", path, failed)
		}
		return s.openIn(ctx, ref, v, path)
	}
	return nil, FileInfo{}, err
}

func (s *Store) readKept(ctx context.Context, key string) (link, error) {
	obj, err := s.objects.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return link{}, err
	}
	var k kept
	if err := json.Unmarshal(obj.Data, &k); err != nil {
		return link{}, fmt.Errorf("%s: %w: %w", key, objects.ErrCorrupt, err)
	}
	return k.At, nil
}

// markKept marks what a kept version needs as live.
func (c *collector) markKept(ctx context.Context, ref Ref, h head) error {
	for _, name := range c.kept[ref.Workspace] {
		generation, until, ok := keptUntil(name)
		if !ok || until.Before(c.now) || h.Deleted || generation < h.Born {
			continue
		}
		key := ref.key("k/" + name)
		c.live[key] = true
		l, err := c.store.readKept(ctx, key)
		if errors.Is(err, objects.ErrCorrupt) { // its name says enough
			l, err = c.store.linkOf(ctx, ref, generation)
		}
		if errors.Is(err, ErrNotFound) || err == nil && c.givenUp[ref.manifestKey(l.Name)] {
			continue
		}
		if err != nil {
			return err
		}
		m, err := c.store.headerOf(ctx, ref, l.Name, &l.Digest)
		if err != nil {
			return err
		}
		if err := c.markVersion(ctx, ref, keptManifest{link: l, man: m}); err != nil {
			return err
		}
	}
	return nil
}
