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
	"tasks of the leak tests; 0: 2,000 with reuse tenant and 300 with reuse never")

// nosy is a program that looks for traces of other programs, and leaves some.
const nosy = `
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

// Tasks of many tenants run in few boxes: no box serves two tenants, no program finds a trace of another, and all
// resources are released.
func TestLeaksReuseTenant(t *testing.T) {
	long(t)
	checkLeaks(t, executor.ReuseTenant, 2000, 50)
}

// The same with a new box for each task.
func TestLeaksReuseNever(t *testing.T) {
	long(t)
	checkLeaks(t, executor.ReuseNever, 300, 50)
}

// A few of both run in every test.
func TestLeaksShort(t *testing.T) {
	for _, reuse := range []string{executor.ReuseTenant, executor.ReuseNever} {
		t.Run(reuse, func(t *testing.T) { checkLeaks(t, reuse, 12, 6) })
	}
}

func long(t *testing.T) {
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
	boxes := slots + 2 // all bound to a tenant
	if reuse == executor.ReuseNever {
		boxes = 1 // that is ready
	}
	first := max(6, min(count/4, 3*tenants)) // what is made once is there after these
	f.runNosy(t, 0, first, tenants)
	atRest(t, trace, boxes)
	before := f.inUse(t, w)
	f.runNosy(t, first, count, tenants)
	atRest(t, trace, boxes)
	var after use
	eventually(t, "rest", func(context.Context) error {
		if after = f.inUse(t, w); after.exceeds(before) {
			return fmt.Errorf("in use: %+v, and %+v before most tasks", after, before)
		}
		return nil
	})
	t.Logf("in use after %d tasks %+v, after all %+v", first, before, after)
	checkAcquires(t, trace, reuse, count)
}

// atRest waits until the given number of boxes exists, by the trace, and all discarded ones are gone.
func atRest(t *testing.T, trace string, boxes int) {
	t.Helper()
	eventually(t, "rest", func(context.Context) error {
		live, discarded := 0, 0
		for _, e := range events(t, trace) {
			switch e.What {
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
			return fmt.Errorf("%d boxes, %d of them discarded, want %d", live, discarded, boxes)
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
			break // it is being written
		}
		all = append(all, e)
	}
	return all
}

// runNosy runs tasks first to last, a hundred at a time, and checks that none finds traces of another tenant.
func (f *fleet) runNosy(t *testing.T, first, last, tenants int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(f.seed, uint64(first)))
	const together = 100
	var under []submitted
	settle := func(left int) {
		for len(under) > left {
			rec := f.wait(t, under[0])
			if rec.Status != schemas.Succeeded || rec.Result.Output != "[] [] 0\n" {
				t.Errorf("task %s of %s: %s, %q, %v", under[0].name, under[0].ref.Tenant, rec.Status,
					rec.Result.Output, rec.Result.Error)
			}
			under = under[1:]
		}
	}
	for i := first; i < last; i++ {
		task := newTask(state.Ref{Tenant: "t" + strconv.Itoa(whose(i, tenants, rng)), Workspace: "main"}, i)
		f.submit(t, task, nosy, 0)
		under = append(under, task)
		settle(together)
	}
	settle(0)
}

// whose returns the tenant of a task: each has one of the first, to fill the boxes; after that they are random.
func whose(i, tenants int, rng *rand.Rand) int {
	if i < tenants {
		return i
	}
	return rng.IntN(tenants)
}

// use counts the resources of a worker.
type use struct{ Descriptors, Processes, Mounts, Directories int }

// exceeds tolerates a few descriptors of temporary connections.
func (u use) exceeds(before use) bool {
	const slack = 8
	return u.Descriptors > before.Descriptors+slack || u.Processes > before.Processes+slack ||
		u.Mounts > before.Mounts || u.Directories > before.Directories
}

// inUse counts when the pool is at rest, so that as many boxes exist before the tasks as after them.
func (f *fleet) inUse(t *testing.T, w *faulttest.Process) (u use) {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID()))
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := hostdir.Mounts(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	u = use{Descriptors: len(fds), Processes: len(processesIn(f.dir)), Mounts: len(mounts)}
	for _, below := range []string{"w0/boxes", "w0/g"} {
		u.Directories += directories(filepath.Join(f.dir, below), 4)
	}
	return u
}

// directories counts the directories below dir to a depth: those inside of a box do not count.
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

// checkAcquires reads the worker's trace of its pool.
func checkAcquires(t *testing.T, path, reuse string, tasks int) {
	t.Helper()
	served, acquires, ran := map[string]string{}, map[string]int{}, 0
	for _, e := range events(t, path) {
		switch e.What {
		case "acquired":
			if was, ok := served[e.BoxID]; ok && was != e.Tenant {
				t.Errorf("box %s served %s and %s", e.BoxID, was, e.Tenant)
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
			t.Errorf("box %s was acquired %d times", box, n)
		}
	}
	if ran < tasks {
		t.Errorf("%d runs on record for %d tasks", ran, tasks)
	}
	t.Logf("%d runs in %d boxes, %d in one at most", ran, len(served), most)
}
