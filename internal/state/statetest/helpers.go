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

// OpenWorker returns a worker on Ref with the default options.
func OpenWorker(t *testing.T, bucket objects.Objects) *Worker {
	t.Helper()
	return NewWorker(t, bucket, Ref, state.Options{})
}

// OnNth makes the n-th call of an operation on keys with a suffix fail in the way f.
func OnNth(n int, op, suffix string, f mem.Fault) func(mem.Call) mem.Fault {
	var calls atomic.Int64
	return func(c mem.Call) mem.Fault {
		if c.Op == op && strings.HasSuffix(c.Key, suffix) && calls.Add(1) == int64(n) {
			return f
		}
		return mem.OK
	}
}

// EveryThird loses the response to every third call.
func EveryThird() func(mem.Call) mem.Fault {
	var n atomic.Int64
	return func(c mem.Call) mem.Fault {
		if n.Add(1)%3 == 0 {
			return mem.LostResponse
		}
		return mem.OK
	}
}

// Committed makes a workspace of n generations. The file "n" contains the generation; the file "keep" never changes.
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

// KindOf returns the kind of an object by its key: p, m, gc, or HEAD for all others.
func KindOf(key string) string {
	for _, kind := range []string{"p", "m", "gc"} {
		if strings.Contains(key, "/"+kind+"/") {
			return kind
		}
	}
	return "HEAD"
}

// Encrypted is options with a secret.
var Encrypted = state.Options{Secrets: Secrets("the secret of the tests")}

// Carry lets HEAD carry small commits.
func Carry() bool { return true }

// Carrying is options with which HEAD carries small commits.
var Carrying = state.Options{Carry: Carry}

// Gone makes mem.Objects.Damage remove an object.
func Gone([]byte) []byte { return nil }

// Flipped makes mem.Objects.Damage flip a bit of the byte at an offset. A negative offset counts from the end.
func Flipped(at int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[(at+len(data))%len(data)] ^= 1
		return data
	}
}

// BeforeSwap is an object store in memory that calls a function before the first swap of a key.
type BeforeSwap struct {
	*mem.Objects
	Key  string
	Call func() // nil after the call
}

// CompareAndSwap implements objects.Objects.
func (b *BeforeSwap) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if call := b.Call; key == b.Key && call != nil {
		b.Call = nil
		call()
	}
	return b.Objects.CompareAndSwap(ctx, key, old, data)
}

// Strict makes garbage collection keep as little as possible.
var Strict = maintenance.GCOptions{Retention: maintenance.Retention{Newest: 1, All: time.Hour, Daily: 1}}

// Eager compacts at every opportunity.
var Eager = state.Compaction{MaxSmall: 2, SmallBytes: 1 << 20, MaxPacks: 4, Waste: 1}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Forgetful is Strict, and purges deleted workspaces after two days.
var Forgetful = maintenance.GCOptions{Retention: Strict.Retention, Deleted: 48 * time.Hour}

// MirroredFiles returns the files of Ref's mirror, by object name.
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
