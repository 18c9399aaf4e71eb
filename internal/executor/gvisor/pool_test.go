package gvisor_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
)

var long = flag.Bool("long", os.Getenv("CODEFLEET_LONG_TESTS") == "1", "200 boxes instead of 20 in the leak test")

func TestPoolRunsPrograms(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 2, Max: 3, DiskMB: 64})
	if info := p.Info(); info.Driver != "gvisor" {
		t.Errorf("Info = %+v; want the driver gvisor", info)
	}
	box := acquire(t, p, "a", executor.Limits{})
	first := box.BoxID()
	if box.Boot() != "warm" {
		t.Errorf("Boot = %q, want warm", box.Boot())
	}
	if entries, err := os.ReadDir(box.Dir()); err != nil || len(entries) != 2 || entries[0].Name() != "client" {
		t.Errorf("workspace of a new box = %v, %v, want the mount points client and servers", entries, err)
	}
	if got := run(t, box, "open('f', 'w').write('kept'); print(6*7)"); got.Output != "42\n" ||
		got.Status != executor.Succeeded {
		t.Errorf("run = %+v, want 42", got)
	}
	if data, err := os.ReadFile(filepath.Join(box.Dir(), "f")); err != nil || string(data) != "kept" {
		t.Errorf("file of the program on the host = %q, %v; want \"kept\"", data, err)
	}
	box.Release()
	box = acquire(t, p, "a", executor.Limits{})
	if got := run(t, box, "print(open('f').read())"); box.BoxID() != first || got.Output != "kept\n" {
		t.Errorf("second task of the tenant: box %s, %+v; want box %s and its file", box.BoxID(), got, first)
	}
	box.Release()
	box = acquire(t, p, "b", executor.Limits{})
	if got := run(t, box, "import os; print(sorted(os.listdir()))"); box.BoxID() == first || got.Output != views {
		t.Errorf("task of another tenant: box %s, %+v; want a new box and an empty workspace", box.BoxID(), got)
	}
	run(t, box, "import os; os.makedirs('locked/in'); open('locked/in/f', 'w'); os.chmod('locked/in', 0); "+
		"os.chmod('locked', 0)")
	box.Discard() // must also remove the locked directory, or the pool ends with an error
	box.Release()
}

func TestWorkspaceLimit(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 2, DiskMB: 32})
	box := acquire(t, p, "a", executor.Limits{WorkspaceMB: 32})
	v := run(t, box, `
import errno
try:
    for i in range(100):
        with open(f"f{i}", "wb", 0) as f: f.write(bytes(1 << 20))
    import time; time.sleep(60)
except OSError as e: print(errno.errorcode[e.errno])
`)
	if os.Geteuid() == 0 && v.Output != "ENOSPC\n" {
		t.Errorf("program that fills the disk = %+v, want ENOSPC in the program", v)
	}
	if os.Geteuid() != 0 && (v.Status != executor.Failed || v.Error.Code != errcode.WorkspaceLimit) {
		t.Errorf("program that fills the workspace = %+v, want %s", v, errcode.WorkspaceLimit)
	}
	box.Release()
	box = acquire(t, p, "b", executor.Limits{})
	if v := run(t, box, "print(1)"); v.Output != "1\n" {
		t.Errorf("next task = %+v; want the output 1", v)
	}
	box.Release()
}

// TestWorkspacePermissionsAreRestored checks that if a program removes the permissions of its workspace, they are
// restored for the next program.
func TestWorkspacePermissionsAreRestored(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 1, DiskMB: 32})
	box := acquire(t, p, "a", executor.Limits{})
	id := box.BoxID()
	if v := run(t, box, "import os\nos.chmod('/workspace', 0)"); v.Status != executor.Succeeded {
		t.Errorf("program that removes the permissions = %+v; want succeeded", v)
	}
	box.Release()
	box = acquire(t, p, "a", executor.Limits{})
	if v := run(t, box, "open('f', 'w').write('x')\nprint('in')"); v.Output != "in\n" || box.BoxID() != id {
		t.Errorf("next task in box %s = %+v, want it to run in %s", box.BoxID(), v, id)
	}
	box.Release()
}

// TestWatchDisk checks that a box's disk is untouched by programs that only read, and not by any that write.
func TestWatchDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("boxes have disks only if this process is root")
	}
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 1, DiskMB: 32})
	const read = "import os\nprint(sorted(os.listdir()), open('f').read())"
	untouched, id := func() bool { return false }, ""
	for i, c := range []struct {
		program string
		want    bool
	}{
		{"import os\nopen('f', 'w').write('x'); os.mkdir('d')", false},
		{read, false},
		{read, true},
		{read, true},
		{"import os\nos.utime('/workspace', (1, 1))", false},
		{read, true},
		{"import os\nos.utime('/workspace', ns=(1, os.stat('/workspace').st_mtime_ns))", false},
		{read, true},
		{"import mmap\nf = open('f', 'r+')\nmmap.mmap(f.fileno(), 1)[0] = 120", false},
		{read, true},
		{"open('f', 'r+').write('x')", false},
		{read, true},
		{"import os\nos.chmod('d', 0o711)", false},
		{read, true},
		{"import os\nos.rename('d', 'e'); os.rename('e', 'd')", false},
		{read, true},
	} {
		box := acquire(t, p, "a", executor.Limits{})
		if i == 0 {
			untouched, id = box.WatchDisk(), box.BoxID()
		}
		if v := run(t, box, c.program); v.Status != executor.Succeeded || box.BoxID() != id {
			t.Fatalf("program %d in box %s = %+v, want it to succeed in box %s", i, box.BoxID(), v, id)
		}
		if got := untouched(); got != c.want {
			t.Errorf("after program %d, %q: untouched %v, want %v", i, c.program, got, c.want)
		}
		box.Release()
	}
}

// TestDeletedFilesFreeTheDisk checks that files that the host deletes between two tasks free their disk space.
func TestDeletedFilesFreeTheDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("boxes have disks only if this process is root")
	}
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 1, DiskMB: 32})
	const fill = "for i in range(20):\n    with open(f'%d-{i}', 'wb', 0) as f: f.write(bytes(1 << 20))\n" +
		"print('written')"
	id := ""
	for i := range 3 {
		box := acquire(t, p, "a", executor.Limits{WorkspaceMB: 32})
		if i > 0 && box.BoxID() != id {
			t.Fatalf("task %d runs in box %s, want %s", i, box.BoxID(), id)
		}
		id = box.BoxID()
		if v := run(t, box, fmt.Sprintf(fill, i)); v.Output != "written\n" {
			t.Errorf("task %d = %+v, want that the disk has space for its files", i, v)
		}
		for n := range 20 {
			if err := os.Remove(filepath.Join(box.Dir(), fmt.Sprintf("%d-%d", i, n))); err != nil {
				t.Fatal(err)
			}
		}
		box.Release()
	}
}

// TestWorkspaceLimitBelowTheDisk checks that a limit below the size of the box's disk is enforced by watching the
// workspace.
func TestWorkspaceLimitBelowTheDisk(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 1, DiskMB: 64})
	box := acquire(t, p, "a", executor.Limits{WorkspaceMB: 8})
	v := run(t, box, "import time\nprint('begun')\n"+
		"for i in range(20): open(f'f{i}', 'wb', 0).write(bytes(1 << 20))\ntime.sleep(60)")
	if v.Status != executor.Failed || v.Error.Code != errcode.WorkspaceLimit || v.Output != "begun\n" || !v.Dirty {
		t.Errorf("verdict = %+v, want %s, with the output begun", v, errcode.WorkspaceLimit)
	}
	box.Release()
}

func TestBoxDies(t *testing.T) {
	dir, events := shortDir(t), make(chan executor.PoolEvent, 100)
	p := startPool(t, newDriverIn(t, dir), executor.PoolOptions{
		MinReady: 1, Max: 1, DiskMB: 32, Trace: func(e executor.PoolEvent) { events <- e },
	})
	await := func(step string) {
		t.Helper()
		for e := range events {
			if e.Step == step {
				return
			}
		}
	}
	await("created")
	killBelow(t, dir) // idle
	await("destroyed")
	await("created")
	box := acquire(t, p, "a", executor.Limits{})
	if v := run(t, box, "print(1)"); v.Output != "1\n" {
		t.Errorf("run after the death of an idle box = %+v, want the output 1", v)
	}
	v, err := box.Run(t.Context(), executor.Program{TaskID: "t", Code: "print(1, flush=True)\nwhile True: pass"},
		executor.Hooks{
			Output: func(string, []byte) { killBelow(t, dir) },
		})
	if err == nil && (v.Status != executor.Failed || !v.Dirty) {
		t.Errorf("Run in a box that dies = %+v, want an error, or a failed, dirty verdict", v)
	}
	box.Release()
	await("discarded")
	box = acquire(t, p, "a", executor.Limits{})
	if v := run(t, box, "print(2)"); v.Output != "2\n" {
		t.Errorf("run after the death of an acquired box = %+v, want the output 2", v)
	}
	box.Release()
}

// TestStopWhileCreating checks that a pool that is stopped while it creates boxes leaves none.
func TestStopWhileCreating(t *testing.T) {
	d := newDriver(t) // checks at the end of the test that nothing is left
	if _, err := d.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, delay := range []time.Duration{0, 30 * time.Millisecond, 100 * time.Millisecond} {
		p, err := executor.NewPool(d, executor.PoolOptions{MinReady: 2, Dir: shortDir(t), Owner: "test", DiskMB: 32})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), delay)
		if err := p.Run(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run stopped after %v = %v; want nil or a deadline error", delay, err)
		}
		stop()
		if _, err := p.Acquire(t.Context(), executor.Key{Tenant: "a"}, executor.Limits{},
			nil); !errors.Is(err, executor.ErrPoolClosed) {
			t.Errorf("Acquire of a stopped pool = %v, want ErrPoolClosed", err)
		}
	}
}

// usage counts resources that a pool must free.
type usage struct{ processes, mounts, loops, fds int }

func measure(t *testing.T, dir string) usage {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	u := usage{len(processesBelow(t, dir)), strings.Count(string(info), dir), len(loopsBelow(t, dir)), len(fds)}
	if u.processes == 0 || u.mounts == 0 && os.Geteuid() == 0 { // only root's boxes have mounts on this host
		t.Errorf("usage of a ready box = %+v, want its processes and mounts counted", u)
	}
	return u
}

func TestNothingLeaks(t *testing.T) {
	dir := shortDir(t)
	boxes := 20
	if *long {
		boxes = 200
	}
	p := startPool(t, newDriverIn(t, filepath.Join(dir, "gv")), executor.PoolOptions{
		MinReady: 1, Max: 2, Dir: filepath.Join(dir, "pool"), DiskMB: 32,
	})
	var before usage
	for i := range boxes {
		box := acquire(t, p, fmt.Sprint("tenant-", i), executor.Limits{})
		for range 200 / boxes {
			if v := run(t, box, "print(1)"); v.Output != "1\n" {
				t.Fatalf("run %d = %+v; want the output 1", i, v)
			}
		}
		box.Discard()
		if i == 1 {
			before = usageAtRest(t, p, dir)
		}
	}
	if after := usageAtRest(t, p, dir); after != before {
		t.Errorf("usage after %d boxes = %+v, want %+v, as after two boxes", boxes, after, before)
	}
	if s := p.Stats(); s.Discarded != uint64(boxes) || s.Died != 0 {
		t.Errorf("Stats = %+v, want %d boxes discarded and none died", s, boxes)
	}
}

// usageAtRest waits until the pool has only its ready box, and returns its usage.
func usageAtRest(t *testing.T, p *executor.Pool, dir string) usage {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := p.Stats(); s.Ready == 1 && s.Destroying+s.Warming+s.Acquired == 0 {
			return measure(t, dir)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("Stats = %+v, want an idle pool", p.Stats())
		}
	}
}

// TestWorkspaceDirectoryIsReset checks that the mode and times of the workspace directory are reset for each program of
// a box.
func TestWorkspaceDirectoryIsReset(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 1, Max: 1})
	box := acquire(t, p, "a", executor.Limits{})
	id := box.BoxID()
	run(t, box, "import os; os.utime('/workspace', (4711, 4711)); os.chmod('/workspace', 0o7001)")
	box.Release()
	box = acquire(t, p, "a", executor.Limits{})
	defer box.Release()
	v := run(t, box, "import os; s = os.stat('/workspace'); print(oct(s.st_mode), 4711 in (s.st_atime, s.st_mtime))")
	if v.Output != "0o40700 False\n" || box.BoxID() != id {
		t.Errorf("next program in box %s = %+v, want the mode and times reset in box %s", box.BoxID(), v, id)
	}
}
