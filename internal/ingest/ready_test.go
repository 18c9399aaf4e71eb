package ingest_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// breakable is an object store that does not respond while it is broken.
type breakable struct {
	objects.Objects
	broken atomic.Bool
}

func (b *breakable) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if b.broken.Load() {
		<-ctx.Done()
		return objects.Object{}, context.Cause(ctx)
	}
	return b.Objects.Get(ctx, key, o)
}

// TestReady checks that /readyz responds with 503, and does not wait for long, while the object store or the queue does
// not respond.
func TestReady(t *testing.T) {
	store := &breakable{Objects: mem.New()}
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(store, state.Options{})
	})
	check := func(want int) {
		t.Helper()
		start := time.Now()
		resp, err := http.Get(f.URL + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(start); resp.StatusCode != want || took > time.Minute {
			t.Errorf("GET /readyz = %d after %v, want %d within a minute", resp.StatusCode, took, want)
		}
	}
	check(http.StatusOK)
	store.broken.Store(true)
	check(http.StatusServiceUnavailable)
	store.broken.Store(false)
	check(http.StatusOK)
	f.NATS.Close()
	check(http.StatusServiceUnavailable)
}
