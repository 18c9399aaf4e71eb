package statetest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// Ref is the workspace of most tests.
var Ref = state.Ref{Tenant: "acme", Workspace: "main"}

// OpenWorker makes a worker on Ref with the default options.
func OpenWorker(t *testing.T, bucket objects.Objects) *Worker {
	t.Helper()
	return NewWorker(t, bucket, Ref, state.Options{})
}

// OnNth makes the n-th call of an operation on keys with a suffix go wrong.
func OnNth(n int, op, suffix string, f mem.Fault) func(mem.Call) mem.Fault {
	var seen atomic.Int64
	return func(c mem.Call) mem.Fault {
		if c.Op == op && strings.HasSuffix(c.Key, suffix) && seen.Add(1) == int64(n) {
			return f
		}
		return mem.OK
	}
}

// EveryThird loses the answer of every third call.
func EveryThird() func(mem.Call) mem.Fault {
	var n atomic.Int64
	return func(c mem.Call) mem.Fault {
		if n.Add(1)%3 == 0 {
			return mem.LostResponse
		}
		return mem.OK
	}
}

// Committed makes a workspace of n generations: file "n" counts, file "keep" stays.
func Committed(t *testing.T, bucket objects.Objects, n int) *Worker {
	t.Helper()
	w := OpenWorker(t, bucket)
	for i := 1; i <= n; i++ {
		w.Checkout()
		w.Write("n", strconv.Itoa(i))
		if i == 1 {
			w.Write("keep", "kept")
		}
		w.Commit(fmt.Sprintf("task-%d", i))
	}
	return w
}

// Keys returns the keys of all objects.
func Keys(t *testing.T, bucket objects.Objects) []string {
	t.Helper()
	var all []string
	for info, err := range bucket.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return all
}

// Advance moves the clock of the synctest bubble.
func Advance(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	<-timer.C
}

// KindOf is p, m, gc or HEAD.
func KindOf(key string) string {
	for _, kind := range []string{"p", "m", "gc"} {
		if strings.Contains(key, "/"+kind+"/") {
			return kind
		}
	}
	return "HEAD"
}

// Encrypted are options with a secret.
var Encrypted = state.Options{Secrets: Secrets("the secret of the tests")}

// Gone removes an object, see mem.Objects.Damage.
func Gone([]byte) []byte { return nil }

// Flipped flips a bit of an object at an offset; a negative one counts from its end.
func Flipped(at int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[(at+len(data))%len(data)] ^= 1
		return data
	}
}

// Strict are options of garbage collection that keep as little as possible.
var Strict = maintenance.GCOptions{Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: 1}}

// Eager moves content at every opportunity.
var Eager = state.Compaction{Small: 2, Little: 1 << 20, Packs: 4, Waste: 1}

// Must ends the test with an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Forgetful collects with the strictest retention and forgets what was deleted soon.
var Forgetful = maintenance.GCOptions{Retention: Strict.Retention, Deleted: 48 * time.Hour}

// MirroredFiles are the files of a mirror, by the names of their objects.
func MirroredFiles(t interface{ Fatal(...any) }, target objects.Objects) map[string]string {
	const prefix = "acme/main/files/"
	files := map[string]string{}
	for info, err := range target.List(context.Background(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		obj, err := target.Get(context.Background(), info.Key, objects.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(info.Key, prefix)] = string(obj.Data)
	}
	return files
}
