package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

var (
	faultSeed  = flag.Uint64("faults.seed", 0, "seed of the fault tests; 0 chooses one at random")
	faultTasks = flag.Int("faults.tasks", 300, "number of tasks in the fault test, which runs about 10 per second")
)

// source is the CloudEvents source of all tasks.
const source = "/faulttest"

// fleet is a queue, an object store and workers, each in a separate process.
type fleet struct {
	dir       string
	seed      uint64
	sandboxed bool       // whether boxes are gVisor's
	filling   sync.Mutex // held while the disk of NATS is full
	redrives  bool       // whether dead-lettered tasks are redriven, so that they do not end as dead
	env       []string   // environment variables of every role
	nats, s3  *faulttest.Process
	nodes     []*faulttest.Process // of the queue; nats is the first
	workers   []*faulttest.Process
	queue     *jobs.Client
	bucket    objects.Objects
	store     *state.Store
}

// newFleet starts a queue and an object store. The test fails if a process, mount or control group of the fleet is
// left at the end.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	return newFleetWithNodes(t, 1)
}

// newFleetWithNodes is like newFleet, but the queue has several servers.
func newFleetWithNodes(t *testing.T, nodes int) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), seed: *faultSeed}
	for f.seed == 0 {
		f.seed = rand.Uint64() >> 32
	}
	// Programs run as another user and need access.
	if err := os.Chmod(filepath.Dir(f.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	runsc, boxes := engine(), "gVisor"
	if f.sandboxed = runsc != ""; !f.sandboxed {
		boxes = "processes without a sandbox, because runsc or root is missing"
	}
	t.Logf("repeat with -args -faults.seed %d; boxes: %s", f.seed, boxes)
	var servers []string
	for range nodes {
		servers = append(servers, freeAddr(t))
	}
	queueAddr, storeAddr := strings.Join(servers, ","), freeAddr(t)
	f.env = []string{
		"NATS_ADDR=" + queueAddr, "NATS_DIR=" + filepath.Join(f.dir, "nats"),
		"S3_ADDR=" + storeAddr, "S3_DIR=" + filepath.Join(f.dir, "s3"), "RUNSC=" + runsc, "TMPDIR=" + f.dir,
	}
	t.Cleanup(func() { f.checkClean(t) })
	if mib, err := strconv.Atoi(os.Getenv("NATS_DISK_MB")); err == nil {
		smallDisk(t, filepath.Join(f.dir, "nats"), mib)
	}
	f.startQueue(t, servers)
	f.s3 = faulttest.Start(t, "s3", f.env...)
	var err error
	if f.queue, err = connect(t.Context(), queueAddr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.queue.Close)
	eventually(t, "streams", f.queue.Provision) // a cluster needs a leader first
	if f.bucket, err = openObjects(storeAddr); err != nil {
		t.Fatal(err)
	}
	f.store = state.New(f.bucket, state.Options{})
	return f
}

// startQueue starts the servers of the queue.
func (f *fleet) startQueue(t *testing.T, addrs []string) {
	t.Helper()
	var routes []string
	for range addrs {
		routes = append(routes, freeAddr(t))
	}
	for i, addr := range addrs {
		env := f.env
		if len(addrs) > 1 {
			env = append(slices.Clone(env), "NATS_ADDR="+addr, "NATS_DIR="+f.nodeDir(i),
				"NATS_ROUTE="+routes[i], "NATS_ROUTES="+strings.Join(routes, ","))
		}
		f.nodes = append(f.nodes, faulttest.Start(t, "nats", env...))
	}
	f.nats = f.nodes[0]
}

func (f *fleet) nodeDir(i int) string { return filepath.Join(f.dir, "nats", strconv.Itoa(i)) }

// engine returns the path of gVisor's runsc, or "" if this test cannot use it.
func engine() string {
	if os.Geteuid() != 0 {
		return ""
	}
	for _, path := range []string{os.Getenv("CODEFLEET_RUNSC"), "../../bin/runsc", "runsc"} {
		if found, err := exec.LookPath(path); err == nil {
			if found, err = filepath.Abs(found); err == nil {
				return found
			}
		}
	}
	return ""
}

func freeAddr(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// work starts a worker, which is drained at the end of the test.
func (f *fleet) work(t *testing.T, slots int, env ...string) *faulttest.Process {
	t.Helper()
	name := "w" + strconv.Itoa(len(f.workers))
	env = slices.Concat([]string{
		"WORKER=" + name, "WORKER_DIR=" + filepath.Join(f.dir, name), "OWNER=" + f.owner(name),
		"SLOTS=" + strconv.Itoa(slots),
	}, f.env, env)
	w := faulttest.Start(t, "worker", env...)
	f.workers = append(f.workers, w)
	t.Cleanup(func() {
		if err := w.Stop(30 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return w
}

// owner returns the name under which a worker's boxes are unique on this machine.
func (f *fleet) owner(name string) string { return fmt.Sprintf("ft%d%s", os.Getpid(), name) }

// checkClean fails the test if the fleet has left processes or mounts on this machine, and removes them.
func (f *fleet) checkClean(t *testing.T) {
	t.Helper()
	mounts, err := hostdir.Mounts(f.dir)
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts left: %v, %v, want none", mounts, errors.Join(err, hostdir.UnmountBelow(f.dir)))
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/codefleet/" + f.owner("") + "*") // version 1
	if err != nil || len(groups) > 0 {
		t.Errorf("control groups left: %v, %v, want none", groups, err)
	}
	groups, err = filepath.Glob("/sys/fs/cgroup/codefleet/" + f.owner("") + "*") // version 2
	if err != nil || len(groups) > 0 {
		t.Errorf("control groups left: %v, %v, want none", groups, err)
	}
	eventually(t, "exit of all processes", func(context.Context) error {
		left := processesIn(f.dir)
		if len(left) == 0 {
			return nil
		}
		if !f.sandboxed { // without a sandbox, programs of a killed worker may survive
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the process has exited
			}
		}
		return fmt.Errorf("still running: %v", left)
	})
}

// submitted is a task that a test submits.
type submitted struct {
	ref  state.Ref
	name string // name of its file, if it creates one, and id of its event
	id   string
}

func newTask(ref state.Ref, number int) submitted {
	name := fmt.Sprintf("task-%04d", number)
	return submitted{ref: ref, name: name, id: jobs.TaskID(ref.Tenant, source, name)}
}

// submit submits a task whose program sleeps for sleepS seconds. It retries until the task is accepted.
func (f *fleet) submit(t *testing.T, task submitted, code string, sleepS float64) {
	t.Helper()
	f.submitTimes(t, task, code, sleepS, 100)
}

// submitTimes is like submit, but limits the task's attempts.
func (f *fleet) submitTimes(t *testing.T, task submitted, code string, sleepS float64, attempts int) {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"code": code, "retry": map[string]any{"attempts": attempts},
		"inputs": map[string]any{"name": task.name, "sleep_s": sleepS},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev := event.New()
	ev.SetID(task.name)
	ev.SetSource(source)
	ev.SetType(schemas.TypeTask)
	ev.SetExtension("workspace", task.ref.Workspace)
	ev.SetExtension("partitionkey", task.ref.Workspace)
	if err := ev.SetData(event.ApplicationJSON, data); err != nil {
		t.Fatal(err)
	}
	eventually(t, "submission of "+task.name, func(ctx context.Context) error {
		rec, err := f.queue.Submit(ctx, task.ref.Tenant, ev)
		if err == nil && rec.TaskID != task.id {
			t.Fatalf("Submit(%s) = task %s, want %s", task.name, rec.TaskID, task.id)
		}
		return err
	})
}

// wait returns a task's record once it is terminal.
func (f *fleet) wait(t *testing.T, task submitted) schemas.Record {
	t.Helper()
	var rec schemas.Record
	eventually(t, "end of "+task.name, func(ctx context.Context) (err error) {
		rec, err = f.queue.Wait(ctx, task.ref.Tenant, task.id)
		return err
	})
	return rec
}

// eventually calls try, with a timeout of five seconds, until it succeeds. It fails the test after two minutes, or 20
// ack waits if that is longer.
func eventually(t *testing.T, name string, try func(context.Context) error) {
	t.Helper()
	const minTotal, tryTime, delay = 2 * time.Minute, 5 * time.Second, 50 * time.Millisecond
	deadline := time.Now().Add(max(minTotal, 20**chaosAckWait))
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), tryTime)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", name, err)
		}
		<-time.After(delay)
	}
}

// processesIn returns the command lines of other processes that mention dir or whose working directory is below it.
func processesIn(dir string) map[int]string {
	left := map[int]string{}
	names, _ := filepath.Glob("/proc/[0-9]*") // fails only for an invalid pattern
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join(name, "cmdline"))
		if err != nil {
			continue // the process has exited
		}
		cwd, err := os.Readlink(filepath.Join(name, "cwd"))
		if bytes.Contains(line, []byte(dir)) || err == nil && strings.HasPrefix(cwd, dir) {
			left[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return left
}
