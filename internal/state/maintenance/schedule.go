package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// schedule is the object that records when the last run of garbage collection began, so that only one of several
// workers runs it.
type schedule struct {
	Began time.Time `json:"began"`
	By    string    `json:"by"` // random id of the run
}

func scheduleKey(tenant string) string { return tenant + "/gc/HEAD" }

// CollectIfDue calls CollectGarbage if at least the duration `every` has passed since a worker last began a run. ran
// reports whether it did. All workers call CollectIfDue periodically. A run should take less time than `every`.
func CollectIfDue(
	ctx context.Context, r *repo.Repo, tenant string, every time.Duration, opts GCOptions,
) (out GCResult, ran bool, err error) {
	if err := names.Check("tenant", tenant); err != nil {
		return out, false, err
	}
	if due, err := beginIfDue(ctx, r, tenant, every); err != nil || !due {
		return out, false, err
	}
	out, err = CollectGarbage(ctx, r, tenant, opts)
	return out, true, err
}

// beginIfDue reports whether a run is due, and records that it begins.
func beginIfDue(ctx context.Context, r *repo.Repo, tenant string, every time.Duration) (bool, error) {
	key := scheduleKey(tenant)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return false, fmt.Errorf("schedule garbage collection: %w", err)
	}
	var last schedule
	// A time in the future comes from a wrong clock. An object that cannot be decoded counts as missing.
	if body, ok := format.CutDigest(obj.Data); ok && json.Unmarshal(body, &last) == nil {
		if since := time.Since(last.Began); since >= 0 && since < every {
			return false, nil
		}
	}
	body, err := json.Marshal(schedule{time.Now().UTC(), format.NewCommitID()})
	if err != nil {
		return false, err
	}
	_, err = r.Bucket.CompareAndSwap(ctx, key, obj.ETag, format.AppendDigest(body))
	if errors.Is(err, objects.ErrConflict) {
		return false, nil // another worker has begun it
	}
	if err != nil {
		return false, fmt.Errorf("schedule garbage collection: %w", err)
	}
	return true, nil
}
