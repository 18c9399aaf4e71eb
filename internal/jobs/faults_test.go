package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/schemas"
)

var (
	faultSeed  = flag.Uint64("faults.seed", 0, "seed of the fault tests; 0 chooses one at random")
	faultTasks = flag.Int("faults.tasks", 300, "number of tasks in the fault test, which runs about 20 per second")
)

const (
	faultAckWait = 1500 * time.Millisecond
	faultWorkers = 4
	counters     = 8 // they stand for workspaces: each effect is a compare-and-swap on one of them
)

func natsRole(ctx context.Context, ready func()) error {
	srv, err := embedded.StartNATS(ctx, embedded.NATSOptions{
		Dir: os.Getenv("DIR"), Addr: os.Getenv("ADDR"), Log: noLog,
		Fleet: embedded.NATSUser{User: "fleet", Password: "f"},
	})
	if err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	srv.Close()
	return nil
}

func faultClient(ctx context.Context, addr string) (*Client, error) {
	return Connect(ctx, Options{
		Server:      Server{URL: "nats://" + addr, Wait: true},
		Credentials: Credentials{User: "fleet", Password: "f"},
		Storage:     Storage{Revisions: 1000},
		AckWait:     faultAckWait, Log: noLog,
	})
}

func workerRole(ctx context.Context, ready func()) error {
	c, err := faultClient(ctx, os.Getenv("ADDR"))
	if err != nil {
		return err
	}
	ready()
	w := NewWorker(c, WorkerOptions{
		Slots: 4,
		Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
			if err := clock.Sleep(ctx, time.Duration(20+rand.IntN(300))*time.Millisecond); err != nil {
				return nil, err
			}
			return succeedWith(ctx, j, c.applyEffect(ctx, j.Record.TaskID))
		},
	})
	w.leases.unfenced = os.Getenv("UNFENCED") != ""
	return w.Run(ctx, ctx)
}

func succeedWith(ctx context.Context, j *Job, err error) (*schemas.Result, error) {
	if err != nil {
		return nil, err
	}
	return succeed(ctx, j)
}

// counter stands for a workspace's HEAD: it counts and names the tasks whose effect was applied.
type counter struct {
	N     int
	Tasks []string
}

// applyEffect adds the task to its counter by compare-and-swap, unless an earlier run has added it.
func (c *Client) applyEffect(ctx context.Context, id string) error {
	h := fnv.New32a()
	h.Write([]byte(id))
	subject := "$KV.EFFECTS." + strconv.Itoa(int(h.Sum32()%counters))
	for {
		n, rev, err := c.readCounter(ctx, subject)
		if err != nil || slices.Contains(n.Tasks, id) {
			return err
		}
		n.N++
		n.Tasks = append(n.Tasks, id)
		data, err := json.Marshal(n)
		if err != nil {
			return err
		}
		_, err = c.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
			jetstream.WithExpectLastSequencePerSubject(rev))
		if api, ok := errors.AsType[*jetstream.APIError](err); !ok ||
			api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
			return err
		}
	}
}

func (c *Client) readCounter(ctx context.Context, subject string) (n counter, rev uint64, err error) {
	stream, err := c.js.Stream(ctx, "KV_EFFECTS")
	if err != nil {
		return n, 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return n, 0, nil
	}
	if err != nil {
		return n, 0, err
	}
	return n, m.Sequence, json.Unmarshal(m.Data, &n)
}

// faultFleet is a server and workers in separate processes.
type faultFleet struct {
	*fleet
	seed    uint64
	nats    *faulttest.Process
	workers []*faulttest.Process
}

func newFaultFleet(t *testing.T, env ...string) *faultFleet {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := &faultFleet{seed: *faultSeed}
	for f.seed == 0 {
		f.seed = rand.Uint64() >> 32
	}
	t.Logf("repeat with -faults.seed %d", f.seed)
	env = append(env, "ADDR="+addr, "DIR="+t.TempDir())
	f.nats = faulttest.Start(t, "nats", env...)
	c, err := faultClient(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f.fleet = &fleet{Client: c}
	if err := c.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "EFFECTS"}); err != nil {
		t.Fatal(err)
	}
	for range faultWorkers {
		f.workers = append(f.workers, faulttest.Start(t, "worker", env...))
	}
	return f
}

// submitAll submits n tasks, numbered from first, with a delay after each, and returns their ids. It retries each
// submission until it succeeds.
func (f *faultFleet) submitAll(t *testing.T, first, n int, delay time.Duration) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		eventually(t, "submit", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			rec, err := f.Submit(ctx, "acme", taskEvent(strconv.Itoa(first+i), `{"code":"x","retry":{"attempts":100}}`))
			ids[i] = rec.TaskID
			return err
		})
		_ = clock.Sleep(t.Context(), delay)
	}
	return ids
}

// audit compares all revisions of the records, and the counters, with the submitted tasks. twice counts surplus
// completions and effects.
func (f *faultFleet) audit(t *testing.T, ids []string) (problems []string, twice, runs int) {
	t.Helper()
	ends := map[string]int{}
	err := f.readFrom(t.Context(), streamRecords, recordPrefix+">", 1, func(m *nats.Msg) error {
		var e storedRecord
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return err
		}
		if e.Status.Terminal() {
			ends[e.TaskID]++
			runs += e.Run
			if e.Status != schemas.Succeeded {
				problems = append(problems, fmt.Sprintf("task %s ended %s: %v", e.TaskID, e.Status, e.Result.Error))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		twice += max(0, ends[id]-1)
		if ends[id] != 1 {
			problems = append(problems, fmt.Sprintf("task %s has %d terminal records, want 1", id, ends[id]))
		}
	}
	applied, total := map[string]int{}, 0
	for i := range counters {
		n, _, err := f.readCounter(t.Context(), "$KV.EFFECTS."+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		total += n.N
		for _, id := range n.Tasks {
			applied[id]++
		}
	}
	for _, id := range ids {
		twice += max(0, applied[id]-1)
		if applied[id] != 1 {
			problems = append(problems, fmt.Sprintf("task %s was applied %d times, want 1", id, applied[id]))
		}
	}
	if total != len(ids) {
		problems = append(problems, fmt.Sprintf("sum of the counters = %d, want %d", total, len(ids)))
	}
	return problems, twice, runs
}

func (f *faultFleet) waitAll(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		eventually(t, "end of "+id, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), hangTime)
			defer cancel()
			_, err := f.Wait(ctx, "acme", id)
			return err
		})
	}
}

// Every task completes once and its effect is applied once, whatever is killed, stopped or restarted.
func TestFaults(t *testing.T) {
	f := newFaultFleet(t)
	faulty, endFaults := context.WithCancel(t.Context())
	defer endFaults()
	faults := []faulttest.Fault{{Name: "restart of the server", Weight: 1, Do: f.nats.KillAndRestart}}
	for _, w := range f.workers {
		faults = append(faults,
			faulttest.Fault{Name: "kill -9", Weight: 1, Do: w.KillAndRestart},
			faulttest.Fault{Name: "SIGSTOP", Weight: 1, Do: w.Freeze(faultAckWait, 2*faultAckWait)})
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		t.Logf("faults: %v", faulttest.InjectRandomly(faulty, t, f.seed, 700*time.Millisecond, faults...))
	})
	ids := f.submitAll(t, 0, *faultTasks, 45*time.Millisecond)
	endFaults()
	wg.Wait()
	f.waitAll(t, ids)
	problems, twice, runs := f.audit(t, ids)
	t.Logf("%d tasks, %d runs, %d twice, %d problems", len(ids), runs, twice, len(problems))
	for _, p := range problems {
		t.Error(p)
	}
	f.awaitEmpty(t)
}

// Without leases and compare-and-swap, the same audit finds tasks that completed twice after a worker was stopped.
func TestFaultsMutant(t *testing.T) {
	f := newFaultFleet(t, "UNFENCED=1")
	rng := rand.New(rand.NewPCG(f.seed, 0))
	var ids []string
	for _, w := range f.workers {
		ids = append(ids, f.submitAll(t, len(ids), 40, 0)...)
		if err := w.Freeze(2*faultAckWait, 2*faultAckWait)(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
		f.waitAll(t, ids)
		if _, twice, _ := f.audit(t, ids); twice > 0 {
			return
		}
	}
	t.Error("no task completed twice without leases and compare-and-swap")
}
