package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/hostdir"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

var leakTasks = flag.Int("leaks.tasks", 0,
	"number of tasks in the leak tests; 0 means 2,000 with reuse tenant and 300 with reuse never")

// snooping is a program that looks for traces of other programs, and leaves some.
const snooping = `
import os, subprocess
name = inputs["name"].split("-")[0]
seen = [f for d in ("/tmp", "/dev/shm") for f in os.listdir(d)]
mine = [f for f in os.listdir(".") if f.startswith("of-")]
pids = [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
others = [p for p in pids if os.stat("/proc/" + p).st_uid == 65534]
for d in ("/tmp", "/dev/shm"):
    open(os.path.join(d, "left"), "w").close()
subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
print(seen, mine, len(others))
`

// Tasks of many tenants run in few boxes. No box serves two tenants, no program finds a trace of another one, and all
// resources are released.
func TestLeaksReuseTenant(t *testing.T) {
	skipUnlessLong(t)
	checkLeaks(t, executor.ReuseTenant, 2000, 50)
}

// TestLeaksReuseNever is like TestLeaksReuseTenant, but each task gets a new box.
func TestLeaksReuseNever(t *testing.T) {
	skipUnlessLong(t)
	checkLeaks(t, executor.ReuseNever, 300, 50)
}

// TestLeaksShort is a short form of the other leak tests, which are skipped by default.
func TestLeaksShort(t *testing.T) {
	for _, reuse := range []string{executor.ReuseTenant, executor.ReuseNever} {
		t.Run(reuse, func(t *testing.T) { checkLeaks(t, reuse, 12, 6) })
	}
}

func skipUnlessLong(t *testing.T) {
	t.Helper()
	if os.Getenv("CODEFLEET_LONG_TESTS") != "1" {
		t.Skip("takes minutes: set CODEFLEET_LONG_TESTS=1")
	}
}

func checkLeaks(t *testing.T, reuse string, count, tenants int) {
	t.Helper()
	if *leakTasks > 0 && count > 20 {
		count = *leakTasks
	}
	f := newFleet(t)
	if !f.sandboxed {
		t.Skip("needs gVisor: processes without a sandbox see each other")
	}
	trace := filepath.Join(f.dir, "boxes.trace")
	const slots = 3
	w := f.work(t, slots, "REUSE="+reuse, "TRACE="+trace)
	boxes := slots + 2 // all boxes of the pool, bound to a tenant
	if reuse == executor.ReuseNever {
		boxes = 1 // the ready one
	}
	warmUp := max(6, min(count/4, 3*tenants)) // after these tasks, everything that is created once exists
	f.runSnooping(t, 0, warmUp, tenants)
	awaitIdle(t, trace, boxes)
	before := f.resources(t, w)
	f.runSnooping(t, warmUp, count, tenants)
	awaitIdle(t, trace, boxes)
	var after resources
	eventually(t, "release of resources", func(context.Context) error {
		if after = f.resources(t, w); after.exceeds(before) {
			return fmt.Errorf("resources = %+v, but %+v before most tasks", after, before)
		}
		return nil
	})
	t.Logf("resources after %d tasks: %+v, after all: %+v", warmUp, before, after)
	checkAcquires(t, trace, reuse, count)
}

// awaitIdle waits until, according to the trace, the given number of boxes exists and none of them is discarded.
func awaitIdle(t *testing.T, trace string, boxes int) {
	t.Helper()
	eventually(t, "idle pool", func(context.Context) error {
		live, discarded := 0, 0
		for _, e := range events(t, trace) {
			switch e.Step {
			case "created":
				live++
			case "discarded":
				discarded++
			case "destroyed":
				live--
				discarded--
			}
		}
		if live != boxes || discarded != 0 {
			return fmt.Errorf("%d boxes, %d of them discarded, want %d and none", live, discarded, boxes)
		}
		return nil
	})
}

// events returns the worker's trace so far.
func events(t *testing.T, path string) []executor.PoolEvent {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []executor.PoolEvent
	for line := range bytes.Lines(text) {
		var e executor.PoolEvent
		if err := json.Unmarshal(line, &e); err != nil {
			break // the line is being written
		}
		all = append(all, e)
	}
	return all
}

// runSnooping runs the tasks from first to last, about a hundred at a time, and checks that none finds a trace of
// another program.
func (f *fleet) runSnooping(t *testing.T, first, last, tenants int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(f.seed, uint64(first)))
	const maxPending = 100
	var pending []submitted
	waitUntil := func(n int) {
		for len(pending) > n {
			rec := f.wait(t, pending[0])
			if rec.Status != schemas.Succeeded || rec.Result.Output != "[] [] 0\n" {
				t.Errorf("task %s of %s = %s, output %q, error %v; want succeeded and no traces", pending[0].name,
					pending[0].ref.Tenant, rec.Status, rec.Result.Output, rec.Result.Error)
			}
			pending = pending[1:]
		}
	}
	for i := first; i < last; i++ {
		task := newTask(state.Ref{Tenant: "t" + strconv.Itoa(tenantOf(i, tenants, rng)), Workspace: "main"}, i)
		f.submit(t, task, snooping, 0)
		pending = append(pending, task)
		waitUntil(maxPending)
	}
	waitUntil(0)
}

// tenantOf returns the tenant of task i. Each tenant has one of the first tasks, to fill the boxes; the tenants of
// later tasks are random.
func tenantOf(i, tenants int, rng *rand.Rand) int {
	if i < tenants {
		return i
	}
	return rng.IntN(tenants)
}

// resources counts the resources of a worker.
type resources struct{ Descriptors, Processes, Mounts, Directories int }

// exceeds tolerates a few more descriptors and processes, because some are temporary.
func (r resources) exceeds(before resources) bool {
	const slack = 8
	return r.Descriptors > before.Descriptors+slack || r.Processes > before.Processes+slack ||
		r.Mounts > before.Mounts || r.Directories > before.Directories
}

// resources counts the worker's resources. Call it while the pool is idle, so that counts are comparable.
func (f *fleet) resources(t *testing.T, w *faulttest.Process) (r resources) {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID()))
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := hostdir.Mounts(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	r = resources{Descriptors: len(fds), Processes: len(processesIn(f.dir)), Mounts: len(mounts)}
	for _, below := range []string{"w0/boxes", "w0/g"} {
		r.Directories += directories(filepath.Join(f.dir, below), 4)
	}
	return r
}

// directories counts the directories below dir down to a depth, which excludes those inside a box.
func directories(dir string, depth int) int {
	entries, err := os.ReadDir(dir)
	if err != nil || depth == 0 {
		return 0
	}
	n := 0
	for _, e := range entries {
		if e.Type()&fs.ModeDir != 0 {
			n += 1 + directories(filepath.Join(dir, e.Name()), depth-1)
		}
	}
	return n
}

// checkAcquires checks in the trace that no box served two tenants, or two tasks if boxes are not reused.
func checkAcquires(t *testing.T, path, reuse string, tasks int) {
	t.Helper()
	served, acquires, ran := map[string]string{}, map[string]int{}, 0
	for _, e := range events(t, path) {
		switch e.Step {
		case "acquired":
			if was, ok := served[e.BoxID]; ok && was != e.Tenant {
				t.Errorf("box %s served %s and %s, want one tenant", e.BoxID, was, e.Tenant)
			}
			served[e.BoxID] = e.Tenant
			acquires[e.BoxID]++
		case "ran":
			ran++
		}
	}
	most := 0
	for box, n := range acquires {
		most = max(most, n)
		if reuse == executor.ReuseNever && n > 1 {
			t.Errorf("box %s was acquired %d times, want once", box, n)
		}
	}
	if ran < tasks {
		t.Errorf("the trace has %d executions, want at least %d, one for each task", ran, tasks)
	}
	t.Logf("%d executions in %d boxes, at most %d in one", ran, len(served), most)
}
