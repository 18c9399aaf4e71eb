package pipeline

import (
	"context"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
)

// hangingObjects is an object store that does not respond.
type hangingObjects struct{ objects.Objects }

func (hangingObjects) Get(ctx context.Context, _ string, _ objects.GetOptions) (objects.Object, error) {
	<-ctx.Done()
	return objects.Object{}, ctx.Err()
}

// A drain ends the context of a run, but not the one in which the HEAD is prefetched, which lasts until stop. A
// checkout that waits for the HEAD all the same leaves no time to requeue the task.
func TestPrefetchEndsWithTheRun(t *testing.T) {
	store := state.New(hangingObjects{}, state.Options{CacheDir: t.TempDir()})
	head, stop := prefetch(t.Context(), store, state.Ref{Tenant: "default", Workspace: "w"})
	defer stop()
	run, drain := context.WithCancel(t.Context())
	drain()
	if got := head(run); got != nil {
		t.Errorf("head() = %v, want nil", got)
	}
}
