package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Garbage collection removes an object only if an earlier run, at least the grace time before, has marked it. So an
// object that exists, and that was not marked a moment ago, is safe until the grace time has passed: whatever refers to
// it until then keeps it. A marked object may be removed at any moment, by a run that has read HEADs and pins already.
// Versions that retention keeps have no marked objects, except those that were marked before a commit referred to them
// again.

const existParallel = 16 // requests at a time

// Marked returns the keys of the tenant's objects that garbage collection may be about to remove. Call it before
// reading the version that is checked against the result: a version read earlier may need objects that were marked
// since.
func (r *Repo) Marked(ctx context.Context, tenant string) (map[string]bool, error) {
	marked := map[string]bool{}
	for info, err := range r.Bucket.List(ctx, format.MarksPrefix(tenant), "") {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(info.Key, "/HEAD") {
			continue
		}
		obj, err := r.Bucket.Get(ctx, info.Key, objects.GetOptions{})
		if errors.Is(err, objects.ErrNotFound) {
			continue // a run has removed its objects
		}
		if err != nil {
			return nil, err
		}
		var m format.Marks
		if json.Unmarshal(obj.Data, &m) != nil {
			continue // garbage collection ignores it too
		}
		for _, key := range m.Keys {
			marked[key] = true
		}
	}
	return marked, nil
}

// Secure makes sure that garbage collection does not remove the content of a version that is about to be committed
// again. It returns where the content of marked packs was copied to, or nil if there are none. It returns
// objects.ErrNotFound if a pack is missing.
func (r *Repo) Secure(
	ctx context.Context, tenant string, marked map[string]bool, set *format.EntrySet,
) (*Relocation, error) {
	from := map[objects.Digest]bool{}
	var keys []string
	for _, u := range set.PackUses() {
		if key := format.PackKey(tenant, u.Pack.ID); marked[key] {
			from[u.Pack.ID] = true
		} else {
			keys = append(keys, key)
		}
	}
	if err := r.exist(ctx, keys); err != nil || len(from) == 0 {
		return nil, err
	}
	return r.Relocate(ctx, tenant, from, set)
}

// exist returns an error unless all objects exist.
func (r *Repo) exist(ctx context.Context, keys []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(existParallel)
	for _, key := range keys {
		g.Go(func() error {
			_, err := r.Bucket.Get(ctx, key, objects.GetOptions{Length: 1})
			return err
		})
	}
	return g.Wait()
}

// checkKeepable returns objects.ErrNotFound if garbage collection may be about to remove an object that a version
// needs. What the newest version needs is not removed.
func (r *Repo) checkKeepable(
	ctx context.Context, ref format.Ref, marked map[string]bool, at format.ManifestRef, l *Loaded,
) error {
	v, err := r.Current(ctx, ref, nil)
	if err != nil {
		return err
	}
	safe := map[string]bool{}
	if v.Head.Manifest != nil {
		for _, key := range neededKeys(ref, *v.Head.Manifest, &Loaded{v.Manifest, v.Set}) {
			safe[key] = true
		}
	}
	var keys []string
	for _, key := range neededKeys(ref, at, l) {
		if safe[key] {
			continue
		}
		if marked[key] {
			return fmt.Errorf("garbage collection is about to remove %s, because the version is no longer kept: "+
				"restore or fork the version, which copies its content: %w", key, objects.ErrNotFound)
		}
		keys = append(keys, key)
	}
	return r.exist(ctx, keys)
}

// neededKeys returns the keys of the manifests and packs that a version needs.
func neededKeys(ref format.Ref, at format.ManifestRef, l *Loaded) []string {
	keys := []string{ref.ManifestKey(at.Name)}
	for _, m := range l.Manifest.Header.Chain {
		keys = append(keys, ref.ManifestKey(m.Name))
	}
	for _, u := range l.Set.PackUses() {
		keys = append(keys, format.PackKey(ref.Tenant, u.Pack.ID))
	}
	return keys
}

// FindKeepable returns a generation's manifest as FindManifest does, and objects.ErrNotFound if garbage collection may
// be about to remove what the version needs. Whatever refers to the manifest within the grace time keeps the version.
func (r *Repo) FindKeepable(ctx context.Context, ref format.Ref, generation int64) (*format.ManifestRef, error) {
	marked, err := r.Marked(ctx, ref.Tenant)
	if err != nil {
		return nil, err
	}
	fresh := r.Fresh() // cached objects may have been removed
	at, err := fresh.FindManifest(ctx, ref, generation)
	if err != nil || at == nil {
		return nil, err
	}
	l, err := fresh.Load(ctx, ref, *at)
	if err != nil {
		return nil, err
	}
	return at, fresh.checkKeepable(ctx, ref, marked, *at, l)
}

// DedupAge is the age above which a commit stores content again instead of referring to the content of an older
// version, and above which a commit that has not been made fails. It is measured from when the version was the newest,
// and from when the commit began. Twice the age must be at most the grace time of garbage collection.
const DedupAge = 12 * time.Hour
