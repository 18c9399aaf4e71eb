package state_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

func TestCommitSurvivesFaults(t *testing.T) {
	for name, fault := range map[string]func(mem.Call) mem.Fault{
		"swap not applied":             statetest.OnNth(1, "swap", "HEAD", mem.NotApplied),
		"response to swap lost":        statetest.OnNth(1, "swap", "HEAD", mem.LostResponse),
		"response to pack put lost":    statetest.OnNth(1, "put", "", mem.LostResponse),
		"manifest put not applied":     statetest.OnNth(2, "put", "", mem.NotApplied),
		"every third response is lost": statetest.EveryThird(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := mem.New()
				w := statetest.OpenWorker(t, bucket)
				w.Checkout()
				w.Write("a", "1")
				bucket.SetFault(fault)
				c := w.Commit("task-1")
				bucket.SetFault(nil)
				if c.Generation != 1 || c.Already {
					t.Errorf("Commit() = %+v, want generation 1", c)
				}
				if v := statetest.OpenWorker(t, bucket).Checkout(); v.Generation != 1 || v.Commit != c.ID {
					t.Errorf("Checkout() = %+v, want commit %s at generation 1", v, c.ID)
				}
				if err := bucket.Violations(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCommitOutlivesItsVersionInMemory checks that a commit does not depend on the version cache: other commits of the
// same store may evict its version before its swap returns.
func TestCommitOutlivesItsVersionInMemory(t *testing.T) {
	const others = 40 // more versions than a store caches
	bucket := &statetest.BeforeSwap{Objects: mem.New()}
	store := state.New(bucket, state.Options{})
	commit := func(name, task, content string) state.Commit {
		tree, err := store.Tree(t.TempDir(), state.Ref{Tenant: "acme", Workspace: name})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		if _, err := store.Checkout(t.Context(), tree, nil); err != nil {
			t.Fatal(err)
		}
		if err := tree.WriteFile("a", []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := store.Commit(t.Context(), tree, state.CommitOptions{TaskID: task, Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	commit("main", "first", "1")
	for info := range bucket.List(t.Context(), "", "") {
		if strings.HasSuffix(info.Key, "HEAD") {
			bucket.Key = info.Key
		}
	}
	bucket.Call = func() {
		for i := range others {
			commit("other", fmt.Sprintf("other-%d", i), strconv.Itoa(i))
		}
	}
	if c := commit("main", "second", "2"); c.Generation != 2 || bucket.Call != nil {
		t.Errorf("Commit() = %+v, others ran: %v, want generation 2 after the others", c, bucket.Call == nil)
	}
}

// TestLostResponseBuiltUpon checks that a commit whose response was lost is recognised as applied, even if another
// worker has committed since.
func TestLostResponseBuiltUpon(t *testing.T) {
	bucket := mem.New()
	a, b := statetest.OpenWorker(t, bucket), statetest.OpenWorker(t, bucket)
	a.Checkout()
	a.Write("a", "1")
	swapped := false
	bucket.SetFault(func(c mem.Call) mem.Fault {
		switch {
		case c.Op == "swap" && !swapped:
			swapped = true
			return mem.LostResponse
		case c.Op == "get" && swapped:
			bucket.SetFault(nil)
			b.Checkout()
			b.Write("b", "1")
			b.Commit("task-b")
		}
		return mem.OK
	})
	c := a.Commit("task-a")
	if c.Already || c.Generation != 1 || c.TaskID != "task-a" {
		t.Errorf("Commit() = %+v, want the commit of task-a at generation 1", c)
	}
	if v := a.Checkout(); v.Generation != 2 {
		t.Errorf("generation = %d, want 2", v.Generation)
	}
	a.Want(map[string]string{"a": "1", "b": "1"})
}

func TestRequests(t *testing.T) {
	bucket := mem.New()
	w := statetest.OpenWorker(t, bucket)
	w.Checkout()
	w.Write("a", "1")
	w.Commit("task-1")
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"checkout of the same version", func() { w.Checkout() }, "get HEAD"},
		{"commit without changes", func() { w.Commit("task-2") }, ""},
		{
			"one file", func() { w.Checkout(); w.Write("a", "2"); w.Commit("task-3") },
			"get HEAD, put p, put m, swap HEAD",
		},
	} {
		bucket.Calls()
		c.do()
		var got []string
		for _, call := range bucket.Calls() {
			part := "HEAD"
			if !strings.HasSuffix(call.Key, "/HEAD") {
				part = strings.Split(strings.TrimPrefix(call.Key, "acme/w/main"), "/")[1]
			}
			got = append(got, call.Op+" "+part)
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: requests %q, want %q", c.name, s, c.want)
		}
	}
}

func TestUnavailableStoreIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := mem.New()
		w := statetest.OpenWorker(t, bucket)
		w.Checkout()
		w.Write("a", "1")
		want := w.Files()
		bucket.SetFault(func(mem.Call) mem.Fault { return mem.NotApplied })
		start := time.Now()
		_, err := w.Store.Commit(t.Context(), w.Tree, state.CommitOptions{TaskID: "task-1", Attempt: 1})
		if !errors.Is(err, objects.ErrTemporary) {
			t.Errorf("Commit() = %v, want %v", err, objects.ErrTemporary)
		}
		if d := time.Since(start); d < time.Minute || d > 10*time.Minute {
			t.Errorf("Commit() returned after %v, want a few minutes", d)
		}
		bucket.SetFault(nil)
		w.Want(want)
		if c := w.Commit("task-1"); c.Generation != 1 {
			t.Errorf("Commit() after the outage = %+v, want generation 1", c)
		}
	})
}

func TestInterruptedCheckoutIsRepaired(t *testing.T) {
	bucket := mem.New()
	a := statetest.OpenWorker(t, bucket)
	a.Checkout()
	for _, name := range []string{"a", "b", "dir/c"} {
		a.Write(name, statetest.Random(name[0], 3<<20)) // large enough for several packs
	}
	a.Commit("task-1")
	for n := 1; n <= 5; n++ {
		b := statetest.OpenWorker(t, bucket)
		b.Write("dir", "garbage")
		var calls atomic.Int64 // packs are fetched several at a time
		bucket.SetFault(func(mem.Call) mem.Fault {
			if calls.Add(1) >= int64(n) {
				return mem.Broken
			}
			return mem.OK
		})
		_, err := b.Store.Checkout(t.Context(), b.Tree, nil)
		bucket.SetFault(nil)
		if n <= 3 && err == nil {
			t.Errorf("Checkout() with call %d broken succeeded", n)
		}
		b.Write("a", "a program's")
		b.Checkout()
		b.Want(a.Files())
	}
}

func TestDamagedObjects(t *testing.T) {
	for _, kind := range []string{"/p/", "/m/", "/HEAD"} {
		bucket := mem.New()
		a := statetest.OpenWorker(t, bucket)
		a.Checkout()
		a.Write("a", statetest.Random(1, 5000))
		a.Commit("task-1")
		b := statetest.OpenWorker(t, bucket)
		b.Write("mine", "1")
		bucket.SetFault(func(c mem.Call) mem.Fault {
			if strings.Contains(c.Key, kind) {
				return mem.Corrupt
			}
			return mem.OK
		})
		if _, err := b.Store.Checkout(t.Context(), b.Tree, nil); !errors.Is(err, objects.ErrCorrupt) ||
			!strings.Contains(err.Error(), kind) {
			t.Errorf("Checkout() with a damaged %s = %v, want %v with the key", kind, err, objects.ErrCorrupt)
		}
		if kind != "/p/" {
			b.Want(map[string]string{"mine": "1"})
		}
		bucket.SetFault(nil)
		b.Checkout()
		b.Want(a.Files())
	}
}
