package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
)

const (
	chainLeast    = 16 // deltas before a full manifest is written, while they are small
	chainMost     = 64 // deltas before one is written whatever their size
	chainParallel = 8
	keptVersions  = 16 // decoded manifests in memory
	keptEntries   = 500_000
)

// loaded is a manifest with the tree that it describes.
type loaded struct {
	man  *manifest
	snap *snapshot
	size int64 // stored bytes of the manifest
}

// versionCache keeps the last decoded manifests, by key, oldest first.
type versionCache struct {
	mu    sync.Mutex
	keys  []string
	items map[string]*loaded
}

func (c *versionCache) get(key string) *loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[key]
}

func (c *versionCache) put(key string, v *loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items == nil {
		c.items = map[string]*loaded{}
	}
	if c.items[key] == nil {
		c.keys = append(c.keys, key)
	}
	c.items[key] = v
	entries := 0
	for _, item := range c.items {
		entries += len(item.snap.entries)
	}
	for len(c.keys) > 1 && (len(c.keys) > keptVersions || entries > keptEntries) {
		entries -= len(c.items[c.keys[0]].snap.entries)
		delete(c.items, c.keys[0])
		c.keys = c.keys[1:]
	}
}

// readManifest returns the verified bytes of a manifest.
func (s *Store) readManifest(ctx context.Context, ref Ref, l link) ([]byte, error) {
	if data := s.cache.get(l.Digest); data != nil {
		if objects.Sum(data) == l.Digest {
			return data, nil
		}
		s.cache.drop(l.Digest)
	}
	key := ref.manifestKey(l.Name)
	obj, err := s.objects.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return nil, err
	}
	if objects.Sum(obj.Data) != l.Digest {
		return nil, fmt.Errorf("%s: %w: has another digest", key, objects.ErrCorrupt)
	}
	s.cache.put(l.Digest, obj.Data)
	return obj.Data, nil
}

func (s *Store) decode(ctx context.Context, ref Ref, l link, headerOnly bool) (*manifest, int64, error) {
	data, err := s.readManifest(ctx, ref, l)
	if err != nil {
		return nil, 0, err
	}
	plain, key, err := s.keys(ref.Tenant).unlock(ref.manifestThing(), data)
	if err != nil {
		return nil, 0, err
	}
	m, err := decodeManifest(plain, headerOnly)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", ref.manifestKey(l.Name), err)
	}
	m.key = key
	return m, int64(len(data)), nil
}

// load returns the version that a manifest describes.
func (s *Store) load(ctx context.Context, ref Ref, l link) (*loaded, error) {
	key := ref.manifestKey(l.Name)
	if v := s.versions.get(key); v != nil {
		return v, nil
	}
	m, size, err := s.decode(ctx, ref, l, false)
	if err != nil {
		return nil, err
	}
	base, deltas, err := s.loadChain(ctx, ref, m)
	if err != nil {
		return nil, err
	}
	snap, err := base.apply(squash(append(deltas, m)))
	if err == nil && (snap.files != m.header.Files || snap.bytes != m.header.Bytes) {
		err = fmt.Errorf("%d files, %d bytes; the header says %d and %d", snap.files, snap.bytes, m.header.Files, m.header.Bytes)
	}
	if err == nil {
		err = s.checkReserved(snap)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, objects.ErrCorrupt, err)
	}
	v := &loaded{m, snap, size}
	s.versions.put(key, v)
	return v, nil
}

// checkReserved refuses paths that would be written into mount points.
func (s *Store) checkReserved(snap *snapshot) error {
	for _, name := range s.opts.Reserved {
		if snap.find(name) != nil {
			return fmt.Errorf("path %q is reserved", name)
		}
	}
	return nil
}

// loadChain returns the tree below a delta: the newest version of its chain that
// is in memory, else the empty one, and the manifests to apply to that.
func (s *Store) loadChain(ctx context.Context, ref Ref, m *manifest) (*snapshot, []*manifest, error) {
	base, chain := emptySnapshot, m.header.Chain
	for i, l := range slices.Backward(chain) {
		if v := s.versions.get(ref.manifestKey(l.Name)); v != nil {
			base, chain = v.snap, chain[i+1:]
			break
		}
	}
	deltas := make([]*manifest, len(chain))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(chainParallel)
	for i, l := range chain {
		g.Go(func() (err error) {
			deltas[i], _, err = s.decode(ctx, ref, l, false)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if base == emptySnapshot && len(deltas) > 0 && !deltas[0].full() {
		return nil, nil, fmt.Errorf("%s: %w: chain does not begin with a full manifest", ref.manifestKey(chain[0].Name), objects.ErrCorrupt)
	}
	return base, deltas, nil
}

// squash combines consecutive deltas into one.
func squash(deltas []*manifest) []change {
	if len(deltas) == 1 {
		return deltas[0].changes
	}
	latest := map[string]change{}
	for _, m := range deltas {
		for _, c := range m.changes {
			latest[c.path] = c
		}
	}
	changes := slices.Collect(maps.Values(latest))
	sortChanges(changes)
	return changes
}

// current returns the newest version. With an old version it returns that very
// one when it is still current, after one small request.
func (s *Store) current(ctx context.Context, ref Ref, old *version) (*version, error) {
	etag := ""
	if old != nil {
		etag = old.etag
	}
	h, tag, err := s.readHead(ctx, ref, etag)
	if errors.Is(err, objects.ErrNotModified) {
		old.at = time.Now()
		return old, nil
	}
	if err == nil && tag == "" {
		err = s.gone(ctx, ref, old)
	}
	if err != nil {
		return nil, err
	}
	return s.versionOf(ctx, ref, h, tag)
}

func (s *Store) versionOf(ctx context.Context, ref Ref, h head, etag string) (*version, error) {
	v := &version{head: h, etag: etag, snap: emptySnapshot, at: time.Now()}
	if h.Manifest == nil {
		return v, nil
	}
	l, err := s.load(ctx, ref, *h.Manifest)
	if err != nil {
		return nil, err
	}
	v.snap, v.man, v.size = l.snap, l.man, l.size
	return v, nil
}

// readResult returns the result kept in a manifest.
func (s *Store) readResult(ctx context.Context, tenant string, m *manifest) (json.RawMessage, error) {
	if len(m.result) == 0 {
		return m.header.Result, nil
	}
	var size int64
	wants := make([]want, len(m.result))
	for i := range m.result {
		wants[i] = want{&m.result[i], 0, size}
		size += m.result[i].Raw
	}
	if size > maxResult {
		return nil, fmt.Errorf("result of %d bytes: %w", size, objects.ErrCorrupt)
	}
	result := make(json.RawMessage, size)
	err := s.fetch(ctx, tenant, wants, func(_ int, w want, data []byte) error {
		copy(result[w.offset:], data)
		return nil
	})
	return result, err
}
