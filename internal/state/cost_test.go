package state_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestOneFileUpload checks that the upload for one changed file does not grow with the number of files, except for an
// occasional full manifest.
func TestOneFileUpload(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	const files, commits, limit = 2500, 40, 64 << 10
	for i := range files {
		w.Write(fmt.Sprintf("d%02d/f%05d", i%50, i), fmt.Sprintf("%d %s", i, statetest.Random(byte(i), 40)))
	}
	w.Commit("first")
	large := 0
	for i := range commits {
		w.Checkout()
		w.Write("d07/f00007", fmt.Sprint("version ", i))
		bucket.Calls()
		w.Commit(fmt.Sprint("task-", i))
		sizes := map[string]int{}
		for _, call := range bucket.Calls() {
			sizes[call.Op+" "+statetest.KindOf(call.Key)] += call.Size
		}
		if len(sizes) != 3 || sizes["put p"] == 0 || sizes["put p"] > 200 || sizes["put m"] == 0 ||
			sizes["swap HEAD"] == 0 || sizes["swap HEAD"] > mem.MaxSwap {
			t.Fatalf("commit %d wrote %v, want a pack of one small blob, a manifest and HEAD", i, sizes)
		}
		if total := sizes["put p"] + sizes["put m"] + sizes["swap HEAD"]; total > limit {
			large++
		} else if i < 16 && total > 8<<10 {
			t.Errorf("commit %d uploaded %d bytes: %v, want at most 8 KiB", i, total, sizes)
		}
	}
	if large > commits/16 {
		t.Errorf("%d of %d commits of one file among %d uploaded more than %d bytes, want at most one in 16",
			large, commits, files, limit)
	}
	fresh := statetest.NewWorker(t, bucket, ref, state.Options{})
	if v := fresh.Checkout(); v.Generation != commits+1 {
		t.Errorf("Checkout() = %+v, want generation %d", v, commits+1)
	}
	if got := fresh.Files()["d07/f00007"]; got != fmt.Sprint("version ", commits-1) {
		t.Errorf("the file is %q, want version %d", got, commits-1)
	}
}

// TestFirstRunsSearchNoHistory checks that the commit of a task's first run reads nothing, however many tasks have
// committed within the time that a later run would search.
func TestFirstRunsSearchNoHistory(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	const commits = 200 // more than HEAD lists
	for i := range commits {
		w.Checkout()
		w.Write("f", strconv.Itoa(i))
		bucket.Calls()
		opts := state.CommitOptions{
			TaskID: fmt.Sprint("task-", i), Attempt: 1, Since: time.Now(), AloneUntil: time.Now().Add(time.Minute),
		}
		if c, err := w.Store.Commit(t.Context(), w.Tree, opts); err != nil || c.Already {
			t.Fatalf("commit %d = %+v, %v, want a new commit", i, c, err)
		}
		for _, call := range bucket.Calls() {
			if call.Op == "get" && i > 0 { // the first one looks for an earlier workspace of this name
				t.Fatalf("commit %d reads %s, want no read", i, call.Key)
			}
		}
	}
	for _, attempt := range []int{2, 1} { // a second run, and a first one that may not be alone any more
		w.Checkout()
		w.Write("f", "again")
		opts := state.CommitOptions{TaskID: "task-0", Attempt: attempt, Since: time.Now().Add(-time.Minute)}
		if c, err := w.Store.Commit(t.Context(), w.Tree, opts); err != nil || !c.Already {
			t.Errorf("the commit of run %d = %+v, %v, want the one that exists", attempt, c, err)
		}
	}
}
