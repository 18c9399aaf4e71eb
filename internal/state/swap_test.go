package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestSwappedObjects checks that it is detected if any two encrypted objects of a tenant are swapped, even objects of
// the same generation in two workspaces.
func TestSwappedObjects(t *testing.T) {
	bucket := mem.New()
	refs := []state.Ref{ref, {Tenant: ref.Tenant, Workspace: "lab"}}
	for _, r := range refs {
		w := statetest.NewWorker(t, bucket, r, statetest.Encrypted)
		for i := range 3 {
			w.Checkout()
			w.Write("f", fmt.Sprint(r.Workspace, i))
			w.Commit(fmt.Sprint("task-", i))
		}
		statetest.Must(t, history.Pin(t.Context(), w.Store.Repo(), r, "pin", 1))
	}
	damaged := func() bool {
		for _, r := range refs {
			report, err := maintenance.Check(t.Context(), state.New(bucket, statetest.Encrypted).Repo(), r,
				maintenance.CheckOptions{ReadData: true})
			if errors.Is(err, state.ErrKey) {
				t.Errorf("Check() = %v, want anything but ErrKey, because the key is known", err)
			}
			if err != nil || len(report.Problems) > 0 {
				return true
			}
		}
		return false
	}
	all := statetest.Keys(t, bucket)
	content := func(key string) []byte {
		obj, err := bucket.Get(t.Context(), key, objects.GetOptions{})
		statetest.Must(t, err)
		return bytes.Clone(obj.Data)
	}
	put := func(key string, data []byte) { bucket.Damage(key, func([]byte) []byte { return data }) }
	for i, a := range all {
		for _, b := range all[i+1:] {
			inA, inB := content(a), content(b)
			put(a, inB)
			put(b, inA)
			if !damaged() {
				t.Errorf("Check() does not detect that %s and %s are swapped", a, b)
			}
			put(a, inA)
			put(b, inB)
		}
	}
	if damaged() {
		t.Error("Check() finds damage after everything was swapped back")
	}
}
