package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// ReadPins returns the pins and their ETag. Without a pins object, both are zero.
func (r *Repo) ReadPins(ctx context.Context, ref format.Ref) (format.Pins, string, error) {
	obj, err := r.Bucket.Get(ctx, ref.PinsKey(), objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return format.Pins{}, "", nil
	}
	if err != nil {
		return format.Pins{}, "", err
	}
	p, err := format.DecodePins(ref, r.Keys(ref.Tenant), obj.Data)
	if err != nil {
		return p, "", fmt.Errorf("%s: %w", ref.PinsKey(), err)
	}
	return p, obj.ETag, nil
}

// ChangePins reads the pins, calls change, and swaps them if change returns true. After a lost race it starts again.
func (r *Repo) ChangePins(ctx context.Context, ref format.Ref, change func(*format.Pins) bool) error {
	return r.Options.Retry.Swap(ctx, func() (final bool, err error) {
		p, etag, err := r.ReadPins(ctx, ref)
		if err != nil {
			return true, err
		}
		if !change(&p) {
			return true, nil
		}
		return false, r.SwapPins(ctx, ref, etag, p)
	})
}

// SwapPins replaces the pins if their ETag is still etag.
func (r *Repo) SwapPins(ctx context.Context, ref format.Ref, etag string, p format.Pins) error {
	data, err := format.EncodePins(ref, r.Keys(ref.Tenant), p)
	if err != nil {
		return err
	}
	_, err = r.Bucket.CompareAndSwap(ctx, ref.PinsKey(), etag, data)
	return err
}

// Retain keeps a version from garbage collection until a time, or until the workspace is deleted. It may be repeated.
// It returns objects.ErrNotFound if the version was removed, or if garbage collection may be about to remove it.
func (r *Repo) Retain(ctx context.Context, ref format.Ref, generation int64, until time.Time) error {
	at, err := r.FindManifest(ctx, ref, generation)
	if err == nil && generation == 0 { // the newest version changes
		err = objects.ErrNotFound
	}
	if err == nil {
		var found *NamedManifest
		found, err = r.ReadNamed(ctx, ref, at.Name) // what is in memory may have been removed
		if err == nil && time.Since(found.Manifest.Header.Time) > DedupAge {
			at, err = r.FindKeepable(ctx, ref, generation)
		}
	}
	if err != nil {
		return fmt.Errorf("retain generation %d: %w", generation, err)
	}
	data, err := json.Marshal(format.Retained{At: *at})
	if err != nil {
		return err
	}
	return r.Bucket.Put(ctx, ref.RetainedKey(at.Generation(), until.Unix()), data, objects.Sum(data))
}

// ReadRetained returns the manifest of the version that the object at key retains. If the object is damaged, the
// history says which manifest has its generation. If the history no longer has the generation, ReadRetained returns all
// manifests that may be the version's.
func (r *Repo) ReadRetained(
	ctx context.Context, ref format.Ref, generation int64, key string,
) ([]format.ManifestRef, error) {
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return nil, err
	}
	var k format.Retained
	if json.Unmarshal(obj.Data, &k) == nil && k.At.Name == format.ManifestName(
		generation, format.ManifestDigits(k.At.Digest)) {
		return []format.ManifestRef{k.At}, nil
	}
	at, err := r.FindManifest(ctx, ref, generation)
	if errors.Is(err, objects.ErrNotFound) {
		return r.listGeneration(ctx, ref, generation)
	}
	if err != nil {
		return nil, err
	}
	return []format.ManifestRef{*at}, nil
}

// listGeneration returns the readable manifests of a generation. Commits that lost the race for it have left some.
func (r *Repo) listGeneration(ctx context.Context, ref format.Ref, generation int64) ([]format.ManifestRef, error) {
	var found []format.ManifestRef
	prefix := ref.ManifestPrefix()
	for o, err := range r.Bucket.List(ctx, prefix+format.ManifestName(generation, ""), "") {
		if err != nil {
			return nil, err
		}
		m, err := r.ReadNamed(ctx, ref, o.Key[len(prefix):])
		if err == nil {
			found = append(found, m.Ref)
		} else if !format.IsDamage(err) {
			return nil, err
		}
	}
	return found, nil
}
