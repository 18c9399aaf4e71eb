package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// ReadFloor returns the floor of a tenant and its ETag, which is "" if there is none.
func (r *Repo) ReadFloor(ctx context.Context, tenant string) (f format.Floor, etag string, err error) {
	key := format.FloorKey(tenant)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return f, "", nil
	}
	if err != nil {
		return f, "", err
	}
	body, ok := format.CutDigest(obj.Data)
	if err = json.Unmarshal(body, &f); err != nil || !ok || f.Generation < 0 {
		return f, "", fmt.Errorf("%s: %w", key, objects.ErrCorrupt)
	}
	return f, obj.ETag, nil
}

// RaiseFloor raises the floor of a tenant to a generation.
func (r *Repo) RaiseFloor(ctx context.Context, tenant string, generation int64) error {
	for backoff := r.Options.Retry.NewBackoff(); ; {
		f, etag, err := r.ReadFloor(ctx, tenant)
		if err != nil || f.Generation >= generation {
			return err
		}
		body, err := json.Marshal(format.Floor{Generation: generation})
		if err != nil {
			return err
		}
		_, err = r.Bucket.CompareAndSwap(ctx, format.FloorKey(tenant), etag, format.AppendDigest(body))
		if errors.Is(err, objects.ErrConflict) || objects.Temporary(ctx, err) {
			if err = backoff.Wait(ctx, err); err == nil {
				continue
			}
		}
		return err
	}
}
