package jobs

import (
	"context"
	"runtime"
	"testing"
)

// TestWatchEnds checks that the end of a watch's context is no error, although it also ends the watch of the bucket.
func TestWatchEnds(t *testing.T) {
	f := newFleet(t)
	store, err := f.Automations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		err := store.Watch(ctx, func(Automation) { // it has read the last of the documents
			watching := f.nc.NumSubscriptions()
			cancel()
			for f.nc.NumSubscriptions() == watching && t.Context().Err() == nil {
				runtime.Gosched() // until the client library has ended the watch
			}
		})
		if err != nil {
			t.Fatalf("Watch %d = %v, want nil", i, err)
		}
	}
}
