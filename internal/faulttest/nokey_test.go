package faulttest_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/statetest"
	"github.com/codefleet/codefleet/schemas"
)

// A worker without a workspace's key completes the workspace's tasks with no_key when no attempt is left, does not
// change the workspace, and runs other tasks.
func TestNoKey(t *testing.T) {
	f := newFleet(t)
	locked, open := state.Ref{Tenant: "acme", Workspace: "locked"}, state.Ref{Tenant: "acme", Workspace: "open"}
	w := statetest.NewWorker(t, f.bucket, locked,
		state.Options{Secrets: statetest.Secrets("another secret")})
	w.Checkout()
	w.Write("file", "content")
	before := w.Commit("first").Generation
	f.work(t, 1, "SECRET=the secret of this worker")
	for i, ref := range []state.Ref{locked, open} {
		task := newTask(ref, i)
		f.submitTimes(t, task, `open("new", "w").write("x")`, 0, 2)
		rec := f.wait(t, task)
		if ref == open {
			if rec.Status != schemas.Succeeded {
				t.Errorf("task of the other workspace = %s, %+v, want succeeded", rec.Status, rec.Result.Error)
			}
			continue
		}
		e := rec.Result.Error
		if rec.Status != schemas.Dead || rec.Run != 2 || e == nil || e.Code != "no_key" ||
			!strings.Contains(e.Hint, "workspaces.encryption") {
			t.Errorf("task = %s after run %d, %+v; want dead after run 2, no_key and a hint at the setting",
				rec.Status, rec.Run, e)
		}
	}
	if info, err := history.ReadInfo(t.Context(), w.Store.Repo(), locked); err != nil || info.Generation != before {
		t.Errorf("generation of the workspace = %d, %v, want %d", info.Generation, err, before)
	}
}
