// Package clock waits.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d. It returns the cause of ctx's end if that comes first, and nil otherwise.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
