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

// schedule is the object by which workers share the work of collecting: who began last, and when.
type schedule struct {
	Began time.Time `json:"began"`
	By    string    `json:"by"` // random
}

func scheduleKey(tenant string) string { return tenant + "/gc/HEAD" }

// CollectIfDue is Collect for one of several workers that all call it now and then: it does nothing,
// and says so, when one of them has begun within every, which should be longer than a run takes. A
// run that dies is made up for by the next turn.
func CollectIfDue(ctx context.Context, r *repo.Repo, tenant string, every time.Duration, opts GCOptions) (out GCResult, ours bool, err error) {
	if !names.IsSlug(tenant) {
		return out, false, fmt.Errorf("tenant name %q is not a slug", tenant)
	}
	if ours, err = claimTurn(ctx, r, tenant, every); err != nil || !ours {
		return out, false, err
	}
	out, err = CollectGarbage(ctx, r, tenant, opts)
	return out, true, err
}

func claimTurn(ctx context.Context, r *repo.Repo, tenant string, every time.Duration) (bool, error) {
	key := scheduleKey(tenant)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	var last schedule
	// A turn in the future is one of a clock that was wrong. What cannot be read was not written by us.
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
		return false, nil // somebody was faster
	}
	if err != nil {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	return true, nil
}
