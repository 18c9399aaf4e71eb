package state_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

const grownCommits = 1500

// grow makes grownCommits commits of a new file of 10 bytes each, and returns the bytes of packs and manifests that
// each of the last ones stored on average.
func grow(t *testing.T, bucket *mem.Objects) (stored int) {
	t.Helper()
	const last = 500
	store := state.New(bucket, state.Options{CacheDir: t.TempDir()})
	for i := range grownCommits {
		if i == grownCommits-last {
			bucket.Calls()
		}
		edits := func(yield func(state.Edit, error) bool) {
			yield(state.Edit{
				Path: fmt.Sprintf("d%02d/f%04d", i%50, i), Kind: state.File,
				Content: strings.NewReader(fmt.Sprintf("%010d", i)),
			}, nil)
		}
		if _, err := store.Edit(t.Context(), ref, state.EditOptions{Base: state.Newest}, edits); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
	}
	for _, call := range bucket.Calls() {
		if call.Op == "put" {
			stored += call.Size
		}
	}
	return stored / last
}

// requests returns the number of requests since the last call, by operation and kind of object.
func requests(bucket *mem.Objects) map[string]int {
	n := map[string]int{}
	for _, call := range bucket.Calls() {
		n[call.Op+" "+statetest.KindOf(call.Key)]++
	}
	return n
}

// TestLongHistory checks that commits, and requests for one version, cost the same however long the history is, and
// that garbage collection reads each manifest once.
func TestLongHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mostStored, mostLeft = 2 << 10, 256 // bytes per commit
		bucket := mem.New()
		if stored := grow(t, bucket); stored > mostStored {
			t.Errorf("a commit of 10 bytes stores %d bytes after %d commits, want at most %d",
				stored, grownCommits, mostStored)
		}
		r := state.New(bucket, state.Options{}).Repo()
		diff, err := history.Diff(t.Context(), r, ref, 1, 0)
		if n := requests(bucket)["get m"]; err != nil || len(diff) != grownCommits-1+49 || n > 100 {
			t.Errorf("Diff() from the first version = %d changes, %v, by reading %d manifests, want %d by at most 100",
				len(diff), err, n, grownCommits-1+49)
		}
		log, err := history.Log(t.Context(), r, ref, 0)
		if err != nil || len(log) != grownCommits {
			t.Fatalf("Log() = %d commits, %v, want %d", len(log), err, grownCommits)
		}
		for i, c := range log {
			n := grownCommits - 1 - i
			path := fmt.Sprintf("d%02d/f%04d", n%50, n)
			if c.Generation != int64(n+1) || c.Changed[len(c.Changed)-1] != path || len(c.Changed) > 2 {
				t.Fatalf("Log()[%d] = generation %d that changed %v, want %d and %s",
					i, c.Generation, c.Changed, n+1, path)
			}
		}
		requests(bucket)
		collect(t, bucket)
		if n := requests(bucket)["get m"]; n > grownCommits*11/10 {
			t.Errorf("garbage collection read manifests %d times, want at most %d", n, grownCommits*11/10)
		}
		for range 3 {
			statetest.Advance(t, 8*24*time.Hour)
			collect(t, bucket)
		}
		left := 0
		for info, err := range bucket.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			left += int(info.Size)
		}
		if left > grownCommits*mostLeft {
			t.Errorf("garbage collection left %d bytes per commit, want at most %d", left/grownCommits, mostLeft)
		}
		report, err := maintenance.Check(t.Context(), r, ref, maintenance.CheckOptions{ReadData: true})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("Check() = %+v, %v, want no problems", report, err)
		}
		if v := statetest.NewWorker(t, bucket, ref, state.Options{}).Checkout(); v.Files != grownCommits+50 {
			t.Errorf("Checkout() = %+v, want %d files", v, grownCommits+50)
		}
		if err := bucket.Violations(); err != nil {
			t.Error(err)
		}
	})
}

func collect(t *testing.T, bucket *mem.Objects) {
	t.Helper()
	r := state.New(bucket, state.Options{}).Repo()
	if _, err := maintenance.CollectGarbage(t.Context(), r, ref.Tenant, maintenance.GCOptions{}); err != nil {
		t.Fatal(err)
	}
}
