package history_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestPinRemovedVersion checks that a version cannot be pinned if garbage collection has removed it, even if it is
// still in memory. The log, and every later run of garbage collection, would fail at such a pin.
func TestPinRemovedVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.NewWorker(t, bucket, ref, state.Options{})
		for i := range 25 {
			w.Checkout()
			w.Write("f", strconv.Itoa(i))
			w.Commit(fmt.Sprint("task-", i))
			statetest.Advance(t, 48*time.Hour)
		}
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
				statetest.Strict)
			statetest.Must(t, err)
		}
		if _, err := history.Diff(t.Context(), state.New(bucket, state.Options{}).Repo(), ref, 12, 0); !errors.Is(err,
			state.ErrNotFound) {
			t.Fatalf("Diff() of version 12 = %v, want it removed", err)
		}
		// The store of w still has the version in memory.
		if err := history.Pin(t.Context(), w.Store.Repo(), ref, "pin", 12); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Pin() of a removed version = %v, want %v", err, state.ErrNotFound)
		}
		statetest.Must(t, history.Pin(t.Context(), w.Store.Repo(), ref, "newest", 0))
		log, err := history.Log(t.Context(), state.New(bucket, state.Options{}).Repo(), ref, 0)
		if err != nil || log[len(log)-1].Generation <= 12 {
			t.Errorf("Log() = %+v, %v, want only versions after 12", log, err)
		}
		_, err = maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
			statetest.Strict)
		statetest.Must(t, err)
	})
}
