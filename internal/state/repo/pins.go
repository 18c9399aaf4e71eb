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

func (r *Repo) ReadPins(ctx context.Context, ref format.Ref) (format.Pins, string, error) {
	var p format.Pins
	obj, err := r.Bucket.Get(ctx, ref.PinsKey(), objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return p, "", nil
	}
	if err != nil {
		return p, "", err
	}
	plain, key, err := r.Keys(ref.Tenant).Decrypt(ref.PinsIdentity(), obj.Data)
	if err != nil {
		return p, "", fmt.Errorf("%s: %w", ref.PinsKey(), err)
	}
	p.Key = key
	body, ok := format.CutDigest(plain)
	if err = json.Unmarshal(body, &p); err != nil || !ok {
		return p, "", fmt.Errorf("%s: %w", ref.PinsKey(), objects.ErrCorrupt)
	}
	return p, obj.ETag, nil
}

// ChangePins applies change until it wins.
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

func (r *Repo) SwapPins(ctx context.Context, ref format.Ref, etag string, p format.Pins) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if data = r.Keys(ref.Tenant).Encrypt(ref.PinsIdentity(), format.AppendDigest(data)); len(data) > format.MaxHead {
		return fmt.Errorf("%w: too many pins", format.ErrQuota)
	}
	_, err = r.Bucket.CompareAndSwap(ctx, ref.PinsKey(), etag, data)
	return err
}

// Retain has collections spare a version until a time, with all that it needs. Deleting the workspace
// ends that. It may be repeated.
func (r *Repo) Retain(ctx context.Context, ref format.Ref, generation int64, until time.Time) error {
	at, err := r.LinkOf(ctx, ref, generation)
	if err != nil {
		return fmt.Errorf("keep %s: %w", ref, err)
	}
	data, err := json.Marshal(format.Retained{At: at})
	if err != nil {
		return err
	}
	return r.Bucket.Put(ctx, ref.RetainKey(generation, until.Unix()), data, objects.Sum(data))
}

func (r *Repo) ReadKept(ctx context.Context, key string) (format.ManifestRef, error) {
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
