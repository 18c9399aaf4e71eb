package gvisor_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestLeftoversAreNotTheNextTasks checks that a tenant's next task gets a new box if a program has left more files than
// the runner removes at once, or memory that the engine keeps, and otherwise the same box.
func TestLeftoversAreNotTheNextTasks(t *testing.T) {
	d := newDriver(t)
	info, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const tooManyFiles, tooMuchMemory = "left more in the scratch directories", "it uses over 96 MB more"
	const check = "import os\nsorted(os.listdir('/tmp') + os.listdir('/dev/shm'))"
	for _, c := range []struct {
		name, code string
		reason     string // part of the reason why the box is replaced; empty if it is not
	}{
		{name: "nothing", code: "None"},
		{name: "some files", code: `
for i in range(200):
    open(f"/tmp/{i}", "x").close()`},
		{name: "full scratch directories", code: `
for place in "/tmp", "/dev/shm":
    with open(place + "/left", "wb") as f: f.write(bytes(60 << 20))`},
		{name: "memory of processes", code: `
import os, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
kept = b"x" * (200 << 20)
None`},
		{name: "40,000 files", reason: tooManyFiles, code: `
import os
os.mkdir("/tmp/left")
os.chdir("/tmp/left")
for i in range(40000): open(str(i), "x").close()`},
		{name: "nested directories", reason: tooManyFiles, code: `
import os
os.chdir("/dev/shm")
for _ in range(12000):
    os.mkdir("d")
    os.chdir("d")`},
		{name: "full pipes", reason: tooMuchMemory, code: `
import fcntl, os
for _ in range(400):
    r, w = os.pipe()
    os.set_blocking(w, False)
    fcntl.fcntl(w, 1031, 1 << 20) # F_SETPIPE_SZ
    try:
        while True: os.write(w, bytes(1 << 16))
    except BlockingIOError: pass`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.reason == tooMuchMemory && info.Limits != "cgroup" {
				t.Skip("without control groups a box has no memory limit")
			}
			l := &logtest.Log{}
			p := startPool(t, d, executor.PoolOptions{
				MinReady: -1, Max: 1, DiskMB: -1, Log: slog.New(slog.NewTextHandler(l, nil)),
			})
			limits := executor.Limits{MemoryMB: 512, OpenFiles: 1000}
			box := acquire(t, p, "a", limits)
			program := executor.Program{TaskID: "t", Code: c.code, Limits: limits}
			v, err := box.Run(t.Context(), program, executor.Hooks{})
			if err != nil || v.Status != executor.Succeeded || v.Dirty {
				t.Fatalf("program that leaves something = %+v, %+v, %v, want success", v, v.Error, err)
			}
			box.Release()
			next := acquire(t, p, "a", limits)
			defer next.Release()
			if reused := next.BoxID() == box.BoxID(); reused != (c.reason == "") {
				t.Errorf("the next task has the same box: %v, want %v", reused, c.reason == "")
			}
			if log := l.String(); c.reason != "" && !strings.Contains(log, c.reason) {
				t.Errorf("log = %s, want the reason %q", log, c.reason)
			}
			if v := run(t, next, check); string(v.Result) != "[]" {
				t.Errorf("files in the box of the next task = %s, %+v, want none", v.Result, v.Error)
			}
		})
	}
}
