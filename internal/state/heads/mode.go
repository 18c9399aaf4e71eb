package heads

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// markerPrefix is the prefix of the keys of the objects that name a bucket's head mode.
const markerPrefix = "_heads/"

// RequireMode records the head mode at a bucket's first use. Later it returns an error that wraps objects.ErrConflict
// if the bucket has a different mode, because two modes at once would lead to two histories.
func RequireMode(ctx context.Context, bucket objects.Objects, mode string) error {
	bucket = objects.WithRetry(bucket, objects.RetryPolicy{})
	recorded, err := modes(ctx, bucket)
	if err == nil && len(recorded) == 0 {
		if err = bucket.Put(ctx, markerPrefix+mode, nil, objects.Sum(nil)); err == nil {
			recorded, err = modes(ctx, bucket) // another process may have recorded a mode at the same time
		}
		if err == nil && len(recorded) == 0 {
			recorded = []string{mode} // the listing is stale
		}
	}
	if err != nil {
		return fmt.Errorf("read head mode: %w", err)
	}
	if !slices.Equal(recorded, []string{mode}) {
		return fmt.Errorf("%w: the bucket has the head mode %s (object %s), want %s",
			objects.ErrConflict, strings.Join(recorded, " and "), markerPrefix+recorded[0], mode)
	}
	return nil
}

// modes returns the recorded head modes of a bucket.
func modes(ctx context.Context, bucket objects.Objects) ([]string, error) {
	var recorded []string
	for info, err := range bucket.List(ctx, markerPrefix, "") {
		if err != nil {
			return nil, err
		}
		recorded = append(recorded, strings.TrimPrefix(info.Key, markerPrefix))
	}
	return recorded, nil
}
