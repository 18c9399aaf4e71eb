package repo

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

const (
	chainParallel = 8       // manifests of a chain that are read at a time
	maxVersions   = 16      // versions in memory
	maxEntries    = 500_000 // entries of all versions in memory
)

// Loaded is a manifest with the entries of its version.
type Loaded struct {
	Manifest *format.Manifest
	Set      *format.EntrySet
}

// versionCache keeps the last decoded versions, by their manifests' keys.
type versionCache struct {
	mu    sync.Mutex
	keys  []string // oldest first
	items map[string]*Loaded
}

func (c *versionCache) get(key string) *Loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[key]
}

func (c *versionCache) put(key string, v *Loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items == nil {
		c.items = map[string]*Loaded{}
	}
	if c.items[key] == nil {
		c.keys = append(c.keys, key)
	}
	c.items[key] = v
	entries := 0
	for _, item := range c.items {
		entries += len(item.Set.Entries)
	}
	for len(c.keys) > 1 && (len(c.keys) > maxVersions || entries > maxEntries) {
		entries -= len(c.items[c.keys[0]].Set.Entries)
		delete(c.items, c.keys[0])
		c.keys = c.keys[1:]
	}
}

// fetch returns the verified bytes of a manifest.
func (r *Repo) fetch(ctx context.Context, ref format.Ref, at format.ManifestRef) ([]byte, error) {
	if data := r.Cached(at.Digest); data != nil {
		return data, nil
	}
	key := ref.ManifestKey(at.Name)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return nil, err
	}
	if objects.Sum(obj.Data) != at.Digest {
		return nil, fmt.Errorf("%s: %w: the content does not match the digest", key, objects.ErrCorrupt)
	}
	return obj.Data, nil
}

// decode returns a manifest, and caches it on the worker's disk.
func (r *Repo) decode(ctx context.Context, ref format.Ref, at format.ManifestRef) (*format.Manifest, error) {
	data, err := r.fetch(ctx, ref, at)
	if err != nil {
		return nil, err
	}
	r.Cache(at.Digest, data)
	m, err := r.Codec.DecodeManifest(ref, r.Keys(ref.Tenant), data)
	return m, inManifest(ref, at, err)
}

// peek returns a manifest without caching it, because its callers read very many. If brief is set, lines may be
// missing; see format.Codec.DecodeSummary.
func (r *Repo) peek(
	ctx context.Context, ref format.Ref, at format.ManifestRef, brief bool,
) (*format.Manifest, error) {
	if v := r.versions.get(ref.ManifestKey(at.Name)); v != nil {
		return v.Manifest, nil
	}
	data, err := r.fetch(ctx, ref, at)
	if err != nil {
		return nil, err
	}
	decode := r.Codec.DecodeManifest
	if brief {
		decode = r.Codec.DecodeSummary
	}
	m, err := decode(ref, r.Keys(ref.Tenant), data)
	return m, inManifest(ref, at, err)
}

// inManifest adds a manifest's key to err, which may be nil.
func inManifest(ref format.Ref, at format.ManifestRef, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", ref.ManifestKey(at.Name), err)
}

// Load returns the version that a manifest describes.
func (r *Repo) Load(ctx context.Context, ref format.Ref, at format.ManifestRef) (*Loaded, error) {
	key := ref.ManifestKey(at.Name)
	if v := r.versions.get(key); v != nil {
		return v, nil
	}
	m, err := r.decode(ctx, ref, at)
	if err != nil {
		return nil, err
	}
	base, deltas, err := r.loadChain(ctx, ref, m)
	if err != nil {
		return nil, err
	}
	set, err := base.Apply(format.Squash(append(deltas, m)))
	if err == nil && (set.Files != m.Header.Files || set.Bytes != m.Header.Bytes) {
		err = fmt.Errorf("%d files with %d bytes; the header has %d with %d",
			set.Files, set.Bytes, m.Header.Files, m.Header.Bytes)
	}
	if err == nil {
		err = r.checkReserved(set)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, objects.ErrCorrupt, err)
	}
	v := &Loaded{m, set}
	r.versions.put(key, v)
	return v, nil
}

// checkReserved returns an error if a version has a reserved name, such as one that would hide a mount point.
func (r *Repo) checkReserved(set *format.EntrySet) error {
	for _, name := range r.Options.Reserved {
		if set.Find(name) != nil {
			return fmt.Errorf("path %q is reserved", name)
		}
	}
	return nil
}

// loadChain returns what a delta builds on: its parent or the newest version of its chain if that is in memory, or else
// the empty set, and the manifests to apply to it.
func (r *Repo) loadChain(
	ctx context.Context, ref format.Ref, m *format.Manifest,
) (*format.EntrySet, []*format.Manifest, error) {
	base, at, rest := r.loadedBase(ref, m)
	deltas := make([]*format.Manifest, len(rest))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(chainParallel)
	for i, l := range rest {
		g.Go(func() (err error) {
			deltas[i], err = r.decode(ctx, ref, l.ManifestRef)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if base != nil {
		m.Attach(base.Manifest, at, deltas)
		return base.Set, deltas, nil
	}
	if len(deltas) > 0 && !deltas[0].IsFull() {
		return nil, nil, fmt.Errorf("%s: %w: a chain begins with this manifest, which is not full",
			ref.ManifestKey(rest[0].Name), objects.ErrCorrupt)
	}
	m.Attach(nil, at, deltas)
	return format.EmptySet, deltas, nil
}

// loadedBase returns a version in memory that a delta can be applied to, its reference, and the rest of the chain. It
// returns nil and the whole chain if there is none.
func (r *Repo) loadedBase(
	ref format.Ref, m *format.Manifest,
) (base *Loaded, at format.ManifestRef, rest []format.Layer) {
	usable := func(at format.ManifestRef) bool {
		base = r.versions.get(ref.ManifestKey(at.Name))
		return base != nil && m.Follows(base.Manifest, at)
	}
	p := m.Header.Parent
	if p != nil && usable(*p) && len(m.Header.Chain) <= len(base.Manifest.Header.Chain)+1 {
		return base, *p, nil
	}
	for i, l := range slices.Backward(m.Header.Chain) {
		if usable(l.ManifestRef) {
			return base, l.ManifestRef, m.Header.Chain[i+1:]
		}
	}
	return nil, at, m.Header.Chain
}

// ReadManifest returns a manifest, from memory or the cache if possible. If digest is nil, the manifest is verified
// against the digits of the digest in its name.
func (r *Repo) ReadManifest(
	ctx context.Context, ref format.Ref, name string, digest *objects.Digest,
) (*format.Manifest, error) {
	if v := r.versions.get(ref.ManifestKey(name)); v != nil {
		return v.Manifest, nil
	}
	if digest != nil {
		return r.decode(ctx, ref, format.ManifestRef{Name: name, Digest: *digest})
	}
	found, err := r.ReadNamed(ctx, ref, name)
	if err != nil {
		return nil, err
	}
	return found.Manifest, nil
}

// ReadNamed reads the manifest called name from the object store.
func (r *Repo) ReadNamed(ctx context.Context, ref format.Ref, name string) (*NamedManifest, error) {
	key := ref.ManifestKey(name)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return nil, err
	}
	at := format.ManifestRef{Name: name, Digest: objects.Sum(obj.Data)}
	if at.Digits() != format.ManifestDigits(at.Digest) {
		return nil, fmt.Errorf("%s: %w: the content does not match the digest", key, objects.ErrCorrupt)
	}
	m, err := r.Codec.DecodeManifest(ref, r.Keys(ref.Tenant), obj.Data)
	if err == nil && m.Header.Generation != at.Generation() {
		err = fmt.Errorf("%w: the header has generation %d", objects.ErrCorrupt, m.Header.Generation)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return &NamedManifest{at, m}, nil
}

// NamedManifest is a manifest that was found by its name.
type NamedManifest struct {
	Ref      format.ManifestRef
	Manifest *format.Manifest
}
