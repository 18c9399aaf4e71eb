package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// turn is the object by which workers share the work of collecting: who began last, and when.
type turn struct {
	Began time.Time `json:"began"`
	By    string    `json:"by"` // random
}

func turnKey(tenant string) string { return tenant + "/gc/HEAD" }

// CollectInTurn is Collect for one of several workers that all call it now and then: it does nothing,
// and says so, when one of them has begun within every, which should be longer than a run takes. A
// run that dies is made up for by the next turn.
func (s *Store) CollectInTurn(ctx context.Context, tenant string, every time.Duration, opts CollectOptions) (out Collected, ours bool, err error) {
	if !slug.MatchString(tenant) {
		return out, false, fmt.Errorf("tenant name %q is not a slug", tenant)
	}
	if ours, err = s.takeTurn(ctx, tenant, every); err != nil || !ours {
		return out, false, err
	}
	out, err = s.Collect(ctx, tenant, opts)
	return out, true, err
}

func (s *Store) takeTurn(ctx context.Context, tenant string, every time.Duration) (bool, error) {
	key := turnKey(tenant)
	obj, err := s.objects.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	var last turn
	// A turn in the future is one of a clock that was wrong. What cannot be read was not written by us.
	if body, ok := unseal(obj.Data); ok && json.Unmarshal(body, &last) == nil {
		if since := time.Since(last.Began); since >= 0 && since < every {
			return false, nil
		}
	}
	body, err := json.Marshal(turn{time.Now().UTC(), newCommitID()})
	if err != nil {
		return false, err
	}
	_, err = s.objects.CompareAndSwap(ctx, key, obj.ETag, seal(body))
	if errors.Is(err, ErrConflict) {
		return false, nil // somebody was faster
	}
	if err != nil {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	return true, nil
}
