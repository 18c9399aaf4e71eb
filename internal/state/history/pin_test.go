package history_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
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

// TestRemovedVersion checks that a version that garbage collection has removed is neither restored nor retained, even
// if it is still in memory, and that an object that retains it does not stop garbage collection.
func TestRemovedVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 47)
		r := w.Store.Repo()
		at, err := r.FindManifest(t.Context(), ref, 16)
		statetest.Must(t, err)
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
				statetest.Strict)
			statetest.Must(t, err)
		}
		if _, err := history.Restore(t.Context(), r, ref, 16, ""); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Restore() of a removed version = %v, want %v", err, state.ErrNotFound)
		}
		if _, err := history.Fork(t.Context(), r, ref, 16, "fork", ""); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Fork() of a removed version = %v, want %v", err, state.ErrNotFound)
		}
		until := time.Now().Add(60 * 24 * time.Hour)
		if err := w.Store.Retain(t.Context(), ref, 16, until); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("Retain() of a removed version = %v, want %v", err, state.ErrNotFound)
		}
		data, err := json.Marshal(format.Retained{At: *at})
		statetest.Must(t, err)
		statetest.Must(t, bucket.Put(t.Context(), ref.RetainedKey(16, until.Unix()), data, objects.Sum(data)))
		_, err = maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
			statetest.Strict)
		if err != nil {
			t.Errorf("CollectGarbage() with a retained version that is gone = %v, want nil", err)
		}
	})
}

// TestUnpinNothing checks that to remove a missing pin writes nothing.
func TestUnpinNothing(t *testing.T) {
	bucket := mem.New()
	r := statetest.Committed(t, bucket, 1).Store.Repo()
	ghost := state.Ref{Tenant: ref.Tenant, Workspace: "ghost"}
	statetest.Must(t, history.Pin(t.Context(), r, ref, "pin", 0))
	bucket.Calls()
	for _, in := range []state.Ref{ref, ghost} {
		statetest.Must(t, history.Unpin(t.Context(), r, in, "missing"))
	}
	for _, call := range bucket.Calls() {
		if call.Op != "get" {
			t.Errorf("Unpin() sent the request %+v, want no change", call)
		}
	}
	if err := history.Unpin(t.Context(), r, state.Ref{Tenant: ref.Tenant, Workspace: "../x"}, "pin"); err == nil {
		t.Error("Unpin() in a workspace with an invalid name = nil, want an error")
	}
	statetest.Must(t, history.Unpin(t.Context(), r, ref, "pin"))
	if pins, err := history.Pins(t.Context(), r, ref); err != nil || len(pins) > 0 {
		t.Errorf("Pins() after Unpin() = %v, %v, want none", pins, err)
	}
}

// TestForkRace checks that a fork does not change a workspace that is created at the same time.
func TestForkRace(t *testing.T) {
	bucket := mem.New()
	statetest.Committed(t, bucket, 2)
	target := state.Ref{Tenant: ref.Tenant, Workspace: "fork"}
	race := &statetest.BeforeSwap{Objects: bucket, Key: target.HeadKey(), Call: func() {
		w := statetest.NewWorker(t, bucket, target, state.Options{})
		w.Checkout()
		w.Write("mine", "1")
		w.Commit("task-1")
	}}
	_, err := history.Fork(t.Context(), state.New(race, state.Options{}).Repo(), ref, 0, "fork", "")
	if !errors.Is(err, objects.ErrConflict) {
		t.Errorf("Fork() to a workspace that was created meanwhile = %v, want %v", err, objects.ErrConflict)
	}
	w := statetest.NewWorker(t, bucket, target, state.Options{})
	w.Checkout()
	w.Want(map[string]string{"mine": "1"})
}
