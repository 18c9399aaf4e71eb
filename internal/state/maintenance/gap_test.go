package maintenance_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// manifests returns the keys of Ref's manifests.
func manifests(t *testing.T, bucket *mem.Objects) (keys []string) {
	t.Helper()
	for _, key := range statetest.Keys(t, bucket) {
		if strings.HasPrefix(key, ref.ManifestPrefix()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestCollectWithLostManifest checks that garbage collection removes nothing if a manifest that retention keeps is lost,
// although no version leads to the older ones, and goes on after a repair.
func TestCollectWithLostManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		statetest.Committed(t, bucket, 14)
		all := manifests(t, bucket)
		r := state.New(bucket, state.Options{}).Repo()
		newest, err := r.Find(t.Context(), ref, 0)
		statetest.Must(t, err)
		lost := 0 // an index in all of one that the newest version does not build on
		for i := 3; i < 10; i++ {
			inChain := false
			for _, l := range newest.Manifest.Header.Chain {
				inChain = inChain || ref.ManifestKey(l.Name) == all[i]
			}
			if !inChain {
				lost = i
			}
		}
		bucket.Damage(all[lost], statetest.Gone)
		for range 3 {
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
				maintenance.GCOptions{})
			if !errors.Is(err, objects.ErrCorrupt) || !strings.Contains(err.Error(), all[lost]) {
				t.Errorf("CollectGarbage() = %v, want %v that names %s", err, objects.ErrCorrupt, all[lost])
			}
		}
		if left := manifests(t, bucket); len(left) != 13 {
			t.Errorf("%d manifests are left, want all 13", len(left))
		}
		_, err = maintenance.Repair(t.Context(), state.New(bucket, state.Options{}).Repo(), ref,
			maintenance.RepairOptions{})
		statetest.Must(t, err)
		for range 2 {
			statetest.Advance(t, 25*time.Hour)
			_, err = maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme",
				maintenance.GCOptions{})
			statetest.Must(t, err)
		}
		log, err := history.Log(t.Context(), state.New(bucket, state.Options{}).Repo(), ref, 0)
		if err != nil || log[len(log)-1].Generation != 1 {
			t.Errorf("Log() = %+v, %v, want all generations down to 1", log, err)
		}
	})
}

// TestCollectWithLongerRetention checks that garbage collection goes on if retention would keep versions that an earlier
// run has removed.
func TestCollectWithLongerRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.Committed(t, bucket, 30)
		statetest.Must(t, history.Pin(t.Context(), w.Store.Repo(), ref, "old", 4))
		collect := func(o maintenance.GCOptions) {
			t.Helper()
			statetest.Advance(t, 25*time.Hour)
			_, err := maintenance.CollectGarbage(t.Context(), state.New(bucket, state.Options{}).Repo(), "acme", o)
			statetest.Must(t, err)
		}
		for range 3 {
			collect(statetest.Strict)
		}
		for range 3 {
			collect(maintenance.GCOptions{})
		}
	})
}
