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

// ReadPins returns the pins and their ETag, or no pins and "" if there are none.
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

// ChangePins reads the pins, calls change and swaps them, until it wins.
func (r *Repo) ChangePins(ctx context.Context, ref format.Ref, change func(*format.Pins)) error {
	for backoff := r.Options.Retry.NewBackoff(); ; {
		p, etag, err := r.ReadPins(ctx, ref)
		if err != nil {
			return err
		}
		change(&p)
		err = r.SwapPins(ctx, ref, etag, p)
		if errors.Is(err, objects.ErrConflict) || objects.Temporary(ctx, err) {
			err = backoff.Wait(ctx, err)
			if err == nil {
				continue
			}
		}
		return err
	}
}

// SwapPins replaces the pins of the given etag.
func (r *Repo) SwapPins(ctx context.Context, ref format.Ref, etag string, p format.Pins) error {
	data, err := format.EncodePins(ref, r.Keys(ref.Tenant), p)
	if err != nil {
		return err
	}
	_, err = r.Bucket.CompareAndSwap(ctx, ref.PinsKey(), etag, data)
	return err
}

// Retain keeps a version from garbage collection until a time. Deleting the workspace ends that. It may be repeated.
func (r *Repo) Retain(ctx context.Context, ref format.Ref, generation int64, until time.Time) error {
	at, err := r.FindManifest(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("retain generation %d of %s: %w", generation, ref, err)
	}
	data, err := json.Marshal(format.Retained{At: at})
	if err != nil {
		return err
	}
	return r.Bucket.Put(ctx, ref.RetainedKey(generation, until.Unix()), data, objects.Sum(data))
}

// ReadRetained returns the manifest of the version that an object retains.
func (r *Repo) ReadRetained(ctx context.Context, key string) (format.ManifestRef, error) {
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil {
		return format.ManifestRef{}, err
	}
	var k format.Retained
	if err := json.Unmarshal(obj.Data, &k); err != nil {
		return format.ManifestRef{}, fmt.Errorf("%s: %w: %w", key, objects.ErrCorrupt, err)
	}
	return k.At, nil
}
