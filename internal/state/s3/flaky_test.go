package s3_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/s3"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestFaultyResponses checks that a commit is complete and happens once, whatever faults the store has.
func TestFaultyResponses(t *testing.T) {
	all := map[string]fault{
		"500": status(http.StatusInternalServerError, "InternalError"),
		"lost request": func(http.ResponseWriter, *http.Request, func() *http.Response) {
			panic(http.ErrAbortHandler)
		},
	}
	maps.Copy(all, faults)
	delete(all, "slow")
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := gateway(t)
			open(t, direct) // makes the bucket
			proxy, opts := newProxy(t, direct)
			random, faulty := rand.New(rand.NewPCG(1, 2)), 0
			proxy.begin(f, func(string) bool {
				hit := random.IntN(3) == 0 // a fixed period would always hit the same requests
				if hit {
					faulty++
				}
				return hit
			})
			runTasks(t, func() objects.Objects { return reopen(t, opts) })
			if proxy.end(); faulty < 5 {
				t.Errorf("%d faulty responses, want at least 5", faulty)
			}
		})
	}
}

// reopen opens the store without EnsureBucket, which does not retry.
func reopen(t *testing.T, opts s3.Options) objects.Objects {
	t.Helper()
	o, err := s3.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runTasks runs tasks on two workers. The second one always has to merge.
func runTasks(t *testing.T, open func() objects.Objects) {
	t.Helper()
	ref := state.Ref{Tenant: "acme", Workspace: "bad"}
	a, b := statetest.NewWorker(t, open(), ref, state.Options{}), statetest.NewWorker(t, open(), ref, state.Options{})
	want := map[string]string{}
	const rounds = 3
	for i := range rounds {
		a.Checkout()
		b.Checkout()
		for prefix, w := range map[string]*statetest.Worker{"a": a, "b": b} {
			path := fmt.Sprint(prefix, i)
			want[path] = strings.Repeat(path, 1000)
			w.Write(path, want[path])
		}
		a.Commit(fmt.Sprint("a-", i))
		if c := b.Commit(fmt.Sprint("b-", i)); c.Generation != int64(2*i+2) || len(c.Changed) != 1 {
			t.Errorf("Commit() = %+v, want generation %d with one change", c, 2*i+2)
		}
	}
	fresh := statetest.NewWorker(t, open(), ref, state.Options{})
	if v := fresh.Checkout(); v.Generation != 2*rounds {
		t.Errorf("Checkout() = %+v, want generation %d", v, 2*rounds)
	}
	fresh.Want(want)
}
