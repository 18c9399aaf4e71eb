package heads

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
)

// markerPrefix begins the keys of the objects that name the head mode of a bucket.
const markerPrefix = "_heads/"

// RequireMode records the head mode of a bucket at its first use, and returns an error that wraps
// objects.ErrConflict if the bucket has another mode: with two modes at once there would be two histories.
func RequireMode(ctx context.Context, bucket objects.Objects, mode string) error {
	bucket = objects.WithRetry(bucket, objects.RetryPolicy{})
	known, err := modes(ctx, bucket)
	if err == nil && len(known) == 0 {
		if err = bucket.Put(ctx, markerPrefix+mode, nil, objects.Sum(nil)); err == nil {
			known, err = modes(ctx, bucket) // another process may have recorded its mode meanwhile
		}
	}
	if err != nil {
		return fmt.Errorf("read head mode: %w", err)
	}
	if !slices.Equal(known, []string{mode}) {
		return fmt.Errorf("%w: heads are kept by %s here (object %s), not by %s",
			objects.ErrConflict, strings.Join(known, " and "), markerPrefix+known[0], mode)
	}
	return nil
}

func modes(ctx context.Context, bucket objects.Objects) ([]string, error) {
	var known []string
	for info, err := range bucket.List(ctx, markerPrefix, "") {
		if err != nil {
			return nil, err
		}
		known = append(known, strings.TrimPrefix(info.Key, markerPrefix))
	}
	return known, nil
}
