package faulttest_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

var losses = flag.Int("losses", 0, "number of servers that TestNodeLoss loses; 0 skips the test")

// TestNodeLoss loses the servers of a cluster in turn, each with its disk, while tasks are submitted. None is refused,
// and each has a record at once. The test logs how long the submissions waited.
//
//	go test ./internal/faulttest -run NodeLoss -v -timeout 1h -args -losses 12
func TestNodeLoss(t *testing.T) {
	if *losses == 0 {
		t.Skip("takes long: set -losses")
	}
	t.Setenv("REPLICAS", "0") // the fleet's default: 3
	f := newFleetWithNodes(t, 3)
	rng := rand.New(rand.NewPCG(f.seed, 0))
	var all []time.Duration
	for i := range *losses {
		ctx, end := context.WithCancel(t.Context())
		s := f.submitSteadily(ctx, t, i)
		node := i % len(f.nodes)
		// The others elect their leaders and take submissions before it returns.
		err := f.nodes[node].Outage(10*time.Second, 20*time.Second, f.nodeDir(node))(ctx, rng)
		if err == nil {
			err = f.caughtUp(ctx)
		}
		end()
		waits := s.end()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("loss %d: %d submissions, longest wait %v", i+1, len(waits), slices.Max(waits))
		all = append(all, waits...)
	}
	slices.Sort(all)
	n := len(all)
	t.Logf("%d losses: %d submissions waited p50 %v, p99 %v, max %v", *losses, n, all[n/2], all[n*99/100], all[n-1])
}

// steady submits tasks, 40 a second.
type steady struct {
	running sync.WaitGroup
	mu      sync.Mutex
	waits   []time.Duration
}

// submitSteadily submits tasks of a tenant of its own until ctx ends.
func (f *fleet) submitSteadily(ctx context.Context, t *testing.T, round int) *steady {
	t.Helper()
	s := &steady{}
	ref := state.Ref{Tenant: "t" + strconv.Itoa(round), Workspace: "w"}
	const submitters, every = 4, 100 * time.Millisecond
	for i := range submitters {
		s.running.Go(func() {
			for n := i; clock.Sleep(ctx, every) == nil; n += submitters {
				task := newTask(ref, n)
				if err := s.submit(t.Context(), f, task); err != nil {
					t.Errorf("submission of %s: %v", task.name, err)
				}
			}
		})
	}
	return s
}

// submit submits a task once and reads its record.
func (s *steady) submit(ctx context.Context, f *fleet, task submitted) error {
	ev := event.New()
	ev.SetID(task.name)
	ev.SetSource(source)
	ev.SetType(schemas.TypeTask)
	if err := ev.SetData(event.ApplicationJSON, map[string]string{"code": "1"}); err != nil {
		return err
	}
	began := time.Now()
	_, err := f.queue.Submit(ctx, task.ref.Tenant, ev)
	wait := time.Since(began)
	s.mu.Lock()
	s.waits = append(s.waits, wait)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("after %v: %w", wait, err)
	}
	_, err = f.queue.Record(ctx, task.ref.Tenant, task.id)
	return err
}

// end waits for the submitters, and returns how long each submission took.
func (s *steady) end() []time.Duration {
	s.running.Wait()
	return s.waits
}
