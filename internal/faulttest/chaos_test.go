package faulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

var (
	chaosTasks    = flag.Int("chaos.tasks", 0, "number of tasks in TestChaos; 0 skips the test")
	chaosNodes    = flag.Int("chaos.nodes", 1, "NATS servers: 1 or 3")
	chaosReplicas = flag.Int("chaos.replicas", 0, "replicas of each stream; 0 selects the fleet's default")
	chaosAckWait  = flag.Duration("chaos.ack-wait", ackWait, "ack wait; a fleet's default is 30s")
	chaosEvery    = flag.Duration("chaos.every", 1500*time.Millisecond, "mean interval between two faults")
	chaosFor      = flag.Duration("chaos.for", 0, "submit no more tasks after this time; 0 submits all")
	chaosOut      = flag.String("chaos.o", "", "file for the result, as JSON")
)

// nodeRole runs a server of a NATS cluster.
func nodeRole(ctx context.Context, ready func()) error {
	addr, err := net.ResolveTCPAddr("tcp", os.Getenv("NATS_ADDR"))
	if err != nil {
		return err
	}
	route, err := net.ResolveTCPAddr("tcp", os.Getenv("NATS_ROUTE"))
	if err != nil {
		return err
	}
	var routes []*url.URL
	for r := range strings.SplitSeq(os.Getenv("NATS_ROUTES"), ",") {
		routes = append(routes, &url.URL{Scheme: "nats", Host: r})
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "node-" + strconv.Itoa(addr.Port), Host: addr.IP.String(), Port: addr.Port,
		Username: embedded.FleetUser, Password: password, MaxPayload: 2 << 20, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: os.Getenv("NATS_DIR"), SyncAlways: true, Routes: routes,
		Cluster: server.ClusterOpts{Name: "chaos", Host: route.IP.String(), Port: route.Port},
	})
	if err != nil {
		return err
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return errors.New("the NATS server is not ready after 30 s")
	}
	ready()
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// booking is the program of TestChaos: it calls a tool that has an effect, and then runs counting.
const booking = `
from client.mcp_client import ToolError
from servers.ledger import book
try:
    book(int(inputs["name"].split("-")[1]))
except ToolError as error:
    print("in doubt:", error)
` + counting

// chaosReport is the result of TestChaos.
type chaosReport struct {
	Seed       uint64                 `json:"seed"`
	Nodes      int                    `json:"nodes"`
	Replicas   int                    `json:"replicas"` // 0 means the fleet's default
	AckWait    string                 `json:"ack_wait"`
	Sandbox    bool                   `json:"sandbox"`
	Tasks      int                    `json:"tasks"`
	Runs       int                    `json:"runs"`
	Statuses   map[schemas.Status]int `json:"statuses"`
	Faults     map[string]int         `json:"faults"`
	Lost       int                    `json:"lost"`
	Twice      int                    `json:"twice"`
	CallsTwice int                    `json:"calls_twice"`
	CallsLost  int                    `json:"calls_lost"`
	InDoubt    int                    `json:"calls_in_doubt"`
	Problems   []string               `json:"problems"`
	Redriven   int                    `json:"redriven"`   // dead letters
	Firings    int                    `json:"firings"`    // of the schedule
	Triggered  int                    `json:"triggered"`  // tasks of the trigger
	Deliveries int                    `json:"deliveries"` // results that the webhook received
	InOrder    int                    `json:"in_order"`   // results with a partition key
	Tries      int                    `json:"tries"`      // requests to the webhook
	Orphans    int                    `json:"orphans"`    // mounts and control groups, 60 s after the end
	Seconds    float64                `json:"seconds"`
}

func (r *chaosReport) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *chaosReport) String() string {
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	var b strings.Builder
	row := func(name string, value any) { fmt.Fprintf(&b, "%-34s %v\n", name, value) }
	row("seed", r.Seed)
	row("NATS servers, replicas, ack wait", fmt.Sprintf("%d, %d (0: default), %s", r.Nodes, r.Replicas, r.AckWait))
	row("tasks, runs, statuses", fmt.Sprintf("%d, %d, %v", r.Tasks, r.Runs, r.Statuses))
	row("faults", fmt.Sprintf("%d: %v", faults, r.Faults))
	row("lost / applied twice", fmt.Sprintf("%d / %d", r.Lost, r.Twice))
	row("calls lost / twice / in doubt", fmt.Sprintf("%d / %d / %d", r.CallsLost, r.CallsTwice, r.InDoubt))
	row("redriven / fired / triggered", fmt.Sprintf("%d / %d / %d", r.Redriven, r.Firings, r.Triggered))
	row("webhook's results / requests", fmt.Sprintf("%d / %d", r.Deliveries, r.Tries))
	row("results with a partition key", r.InOrder)
	row("contradictions", len(r.Problems))
	row("orphans after 60 s", r.Orphans)
	row("seconds", fmt.Sprintf("%.0f", r.Seconds))
	return b.String()
}

// used is a source of random numbers that is closed when it is used.
type used chan struct{}

func (u used) Uint64() uint64 {
	close(u)
	return 0
}

// A fault of a process is not injected while another one is in progress, and does not count.
func TestFaultsOfAProcessDoNotQueue(t *testing.T) {
	p := faulttest.Start(t, "nats", "NATS_ADDR="+freeAddr(t), "NATS_DIR="+t.TempDir())
	ctx, end := context.WithCancel(t.Context())
	frozen := make(used)
	var freezing sync.WaitGroup
	freezing.Go(func() {
		if err := p.Freeze(time.Hour, time.Hour)(ctx, rand.New(frozen)); err != nil {
			t.Error(err)
		}
	})
	<-frozen
	counts := faulttest.InjectRandomly(ctx, t, 1, time.Millisecond, faulttest.Fault{
		Name: "kill -9", Weight: 1, Do: func(ctx context.Context, rng *rand.Rand) error {
			defer end()
			return p.KillAndRestart(ctx, rng)
		},
	})
	freezing.Wait()
	if n := counts["kill -9"]; n != 0 {
		t.Errorf("%d processes were killed while they were frozen, want none", n)
	}
}

// TestRestartOfASlowProcess checks that the limit of Restart is for the exit of the old process, not for the start of
// the new one.
func TestRestartOfASlowProcess(t *testing.T) {
	p := faulttest.Start(t, "slow", "STARTED="+filepath.Join(t.TempDir(), "started"), "RESTART=300ms")
	// It has exited before Restart is called, so that the limit does not depend on the load of this host.
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	if err := p.Restart(100*time.Millisecond)(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestChaos is a long form of TestFaults, with more kinds of faults, a cluster and a tool that has an effect:
//
//	go test ./internal/faulttest -run Chaos -v -timeout 2h -args -chaos.tasks 2000 -chaos.nodes 3
func TestChaos(t *testing.T) {
	if *chaosTasks == 0 {
		t.Skip("takes long: set -chaos.tasks")
	}
	t.Setenv("ACK_WAIT", chaosAckWait.String())
	t.Setenv("REPLICAS", strconv.Itoa(*chaosReplicas))
	if *chaosNodes == 1 && os.Geteuid() == 0 {
		t.Setenv("NATS_DISK_MB", "128")
	}
	began := time.Now()
	f := newFleetWithNodes(t, *chaosNodes)
	f.redrives = true
	f.generate(t)
	ledger := filepath.Join(f.dir, "ledger")
	env := []string{"SERVERS=" + filepath.Join(f.dir, "servers"), "LEDGER=" + ledger}
	for range 2 {
		f.work(t, 2, env...)
	}
	relays := f.relays(t)
	f.work(t, 2, append(env, "NATS_ADDR="+relays[0].Addr(), "S3_ADDR="+relays[1].Addr())...)
	m := startMix(t, f, chaosTenants[0])
	tasks, paths, faults := f.chaos(t, m, relays)
	r := &chaosReport{
		Seed: f.seed, Nodes: *chaosNodes, Replicas: *chaosReplicas, AckWait: chaosAckWait.String(),
		Sandbox: f.sandboxed, Faults: faults, Triggered: len(m.events),
	}
	all, firings := m.end(t, r, tasks)
	paths[m.triggered], paths[m.scheduled] = counterFile, counterFile
	v := f.audit(t, all, paths)
	r.Tasks, r.Firings, r.Redriven = len(all), firings, v.redriven
	r.Deliveries, r.Tries = m.received()
	r.Runs, r.Statuses, r.Lost, r.Twice = v.runs, v.ended, r.Lost+v.lost, r.Twice+v.twice
	r.Problems = append(r.Problems, v.problems...)
	f.auditLedger(t, r, ledger, tasks)
	r.Orphans = f.orphans(t)
	r.Seconds = time.Since(began).Seconds()
	t.Logf("\n%s", r)
	for _, p := range r.Problems {
		t.Error(p)
	}
	if r.Orphans > 0 {
		t.Errorf("%d mounts and control groups are left after 60 s, want 0", r.Orphans)
	}
	if *chaosOut != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(*chaosOut, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// chaosTenants are the tenants of TestChaos. The first has automations.
var chaosTenants = []string{"acme", "globex", "initech"}

// relays returns relays to the first NATS server and to the object store.
func (f *fleet) relays(t *testing.T) []*faulttest.Relay {
	t.Helper()
	var list []*faulttest.Relay
	for _, name := range []string{"NATS_ADDR=", "S3_ADDR="} {
		i := slices.IndexFunc(f.env, func(v string) bool { return strings.HasPrefix(v, name) })
		addr, _, _ := strings.Cut(strings.TrimPrefix(f.env[i], name), ",")
		list = append(list, faulttest.StartRelay(t, addr))
	}
	return list
}

// chaosFaults returns the faults of TestChaos.
func (f *fleet) chaosFaults(t *testing.T, relays []*faulttest.Relay) (all []faulttest.Fault) {
	wait := *chaosAckWait
	add := func(name string, weight int, do func(context.Context, *rand.Rand) error) {
		all = append(all, faulttest.Fault{Name: name, Weight: weight, Do: do})
	}
	for _, w := range f.workers {
		add("kill -9 of a worker", 3, w.KillAndRestart)
		add("SIGSTOP of a worker", 2, w.Freeze(wait, 2*wait))
		add("restart of a worker", 2, w.Restart(time.Minute))
	}
	for _, target := range []string{schemas.PauseFleet, "pool/default", "tenant/" + chaosTenants[0]} {
		add("pause", 1, f.pause(t, target))
	}
	add("redrive", 2, f.redrive)
	add("cut to NATS", 2, cut(relays[0]))
	add("cut to S3", 2, cut(relays[1]))
	add("kill -9 of S3", 2, f.s3.KillAndRestart)
	add("outage of S3", 1, f.s3.Outage(5*time.Second, 15*time.Second))
	if len(f.nodes) == 1 {
		add("kill -9 of NATS", 2, f.nats.KillAndRestart)
		add("outage of NATS", 1, f.nats.Outage(time.Second, 5*time.Second))
		if os.Getenv("NATS_DISK_MB") != "" {
			add("full disk of NATS", 1, f.fillDisk)
		}
		return all
	}
	var serverDown sync.Mutex // held while a server is down or behind: the cluster loses one at a time
	alone := func(do func(context.Context, *rand.Rand) error) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, rng *rand.Rand) error {
			if !serverDown.TryLock() {
				return faulttest.ErrBusy
			}
			defer serverDown.Unlock()
			if err := do(ctx, rng); err != nil {
				return err
			}
			return f.caughtUp(ctx)
		}
	}
	for i, n := range f.nodes {
		add("kill -9 of a NATS server", 2, alone(n.KillAndRestart))
		add("SIGSTOP of a NATS server", 1, alone(n.Freeze(2*time.Second, 8*time.Second)))
		add("outage of a NATS server", 1, alone(n.Outage(2*time.Second, 8*time.Second)))
		if *chaosReplicas != 1 {
			add("loss of a NATS server's disk", 1, alone(n.Outage(time.Second, 2*time.Second, f.nodeDir(i))))
		}
	}
	return all
}

// caughtUp waits until every stream has a leader and all its replicas are up to date: only then may the cluster lose
// another server.
func (f *fleet) caughtUp(ctx context.Context) error {
	nc, err := f.dial()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if behind(ctx, js) == nil {
			return nil
		}
		<-time.After(200 * time.Millisecond)
	}
	return nil // no more faults are injected
}

// behind returns an error if a stream has no leader or a replica that is not up to date.
func behind(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all := js.ListStreams(ctx)
	for info := range all.Info() {
		if info.Cluster == nil || info.Cluster.Leader == "" {
			return fmt.Errorf("stream %s has no leader", info.Config.Name)
		}
		for _, r := range info.Cluster.Replicas {
			if r.Offline || !r.Current {
				return fmt.Errorf("stream %s: %s is behind", info.Config.Name, r.Name)
			}
		}
	}
	return all.Err()
}

// chaos submits the tasks while faults are injected, and waits for them.
func (f *fleet) chaos(t *testing.T, m *mix, relays []*faulttest.Relay) (
	tasks []submitted, paths map[state.Ref]string, faults map[string]int,
) {
	t.Helper()
	paths = map[state.Ref]string{}
	var refs []state.Ref
	for _, tenant := range chaosTenants {
		for i := range 4 { // so that few commits conflict
			ref, path := state.Ref{Tenant: tenant, Workspace: "w" + strconv.Itoa(i)}, counterFile
			if i%2 == 1 {
				path = counterKeys
			}
			paths[ref] = path
			refs = append(refs, ref)
		}
	}
	faulty, endFaults := context.WithCancel(t.Context())
	defer endFaults()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer endFaults()
	wg.Go(func() { faults = faulttest.InjectRandomly(faulty, t, f.seed, *chaosEvery, f.chaosFaults(t, relays)...) })
	rng := rand.New(rand.NewPCG(f.seed, 1))
	tasks = make([]submitted, *chaosTasks)
	const maxQueued = 60
	began := time.Now()
	for i := range tasks {
		if *chaosFor > 0 && time.Since(began) > *chaosFor {
			tasks = tasks[:i]
			break
		}
		tasks[i] = newTask(refs[rng.IntN(len(refs))], i)
		attempts := 100
		if i%8 == 0 {
			attempts = 1 // it dies if its worker does, and is redriven
		}
		f.submitTimes(t, tasks[i], fmt.Sprintf(booking, paths[tasks[i].ref]), rng.Float64()*0.2, attempts)
		if i%5 == 0 {
			m.ping(t, i)
		}
		if i >= maxQueued {
			f.finish(t, tasks[i-maxQueued])
		}
	}
	for _, task := range tasks[:len(tasks)*9/10] {
		f.finish(t, task)
	}
	endFaults()
	wg.Wait()
	for _, task := range tasks {
		f.finish(t, task)
	}
	return tasks, paths, faults
}

// auditLedger checks that each task has called the tool once. A call in doubt may have been made or not.
func (f *fleet) auditLedger(t *testing.T, r *chaosReport, ledger string, tasks []submitted) {
	t.Helper()
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for key := range strings.FieldsSeq(string(text)) {
		calls[key]++
	}
	for i, task := range tasks {
		n := calls[strconv.Itoa(i)]
		doubt := strings.Contains(f.wait(t, task).Result.Output, "in doubt:")
		if doubt {
			r.InDoubt++
		}
		r.CallsTwice += max(0, n-1)
		if n > 1 {
			r.problem("task %s has called the tool %d times, want once", task.name, n)
		}
		if n == 0 && !doubt {
			r.CallsLost++
			r.problem("task %s has not called the tool, want one call", task.name)
		}
	}
}

// orphans stops the workers, and returns how many of their mounts and control groups are left 60 s later.
func (f *fleet) orphans(t *testing.T) (left int) {
	t.Helper()
	for _, w := range f.workers {
		if err := w.Stop(30 * time.Second); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; {
		mounts, err := hostdir.Mounts(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		mounts = slices.DeleteFunc(mounts, func(m string) bool { return m == filepath.Join(f.dir, "nats") })
		left = len(mounts)
		for _, pattern := range []string{"/sys/fs/cgroup/*/codefleet/", "/sys/fs/cgroup/codefleet/"} {
			groups, err := filepath.Glob(pattern + f.owner("") + "*")
			if err != nil {
				t.Fatal(err)
			}
			left += len(groups)
		}
		if left == 0 || time.Now().After(deadline) {
			return left
		}
		<-time.After(time.Second)
	}
}
