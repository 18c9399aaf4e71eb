package gvisor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/logtest"
)

// greeting returns the mount of a package layer with a module that boxes preload.
func greeting(t *testing.T) executor.Mount {
	t.Helper()
	dir := shortDir(t)
	const module = "import os\nimported = os.urandom(8).hex()\n"
	if err := os.WriteFile(filepath.Join(dir, "greeting.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return executor.Mount{Source: dir, Target: executor.PackagesDir, ReadOnly: true}
}

// startPreloaded runs a pool of one box at a time, with greeting preloaded.
func startPreloaded(t *testing.T, d executor.Driver, opts executor.PoolOptions) *executor.Pool {
	t.Helper()
	needsRoot(t)
	root := executor.Root{Preload: []string{"greeting"}, Mounts: []executor.Mount{greeting(t)}}
	opts.MinReady, opts.Max, opts.DiskMB = 1, 1, 32
	prepare := func(context.Context) (executor.Root, error) { return root, nil }
	opts.Environments = []executor.Environment{{Prepare: prepare}}
	return startPool(t, d, opts)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the engine can restore only as root")
	}
}

// runOnce acquires a box for a tenant, runs code in it and releases it.
func runOnce(t *testing.T, p *executor.Pool, tenant, code string) executor.Verdict {
	t.Helper()
	box := acquire(t, p, tenant, executor.Limits{})
	defer box.Release()
	return run(t, box, code)
}

const imported = "import sys\nearly = 'greeting' in sys.modules\nimport greeting\nprint(early, greeting.imported)"

func TestPoolRestoresBoxes(t *testing.T) {
	needsRoot(t)
	dir := shortDir(t)
	left := filepath.Join(dir, "test", "saved", "0")
	if err := os.MkdirAll(left, 0o755); err != nil { // as left by a killed worker
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the pool has stopped
		if _, err := os.Stat(filepath.Join(dir, "test")); !os.IsNotExist(err) {
			t.Errorf("stat of the pool's directory after its end = %v, want that it does not exist", err)
		}
	})
	p := startPreloaded(t, newDriver(t), executor.PoolOptions{Dir: dir})
	before := savedFiles(t, filepath.Dir(left))
	first := runOnce(t, p, "a", imported+"\nopen('/workspace/of-a', 'w')\nopen('/tmp/of-a', 'w')\ngreeting.of_a = 1")
	want := first.Output
	if !strings.HasPrefix(want, "True ") {
		t.Errorf("program in the first box = %+v, want the module imported ahead", first)
	}
	for _, tenant := range []string{"b", "c"} {
		const traces = "\nimport os\n" +
			"print(os.listdir('/tmp'), hasattr(greeting, 'of_a'), sorted(os.listdir('/workspace')))"
		v := runOnce(t, p, tenant, imported+traces)
		if want := want + "[] False " + views; v.Output != want {
			t.Errorf("program in the box of %s = %+v, want the state of the first box before its first program: %s",
				tenant, v, want)
		}
	}
	if s := p.Stats(); s.Created != 3 || s.Restored != 2 {
		t.Errorf("Stats = %+v, want 3 boxes created, 2 of them restored", s)
	}
	if e := p.Environments()[0]; !e.Restored || e.CreateTime <= 0 {
		t.Errorf("Environments = %+v, want the last box restored, and its creation timed", e)
	}
	if after := savedFiles(t, filepath.Dir(left)); after != before {
		t.Errorf("files of the snapshot after three programs = %s, want %s as before", after, before)
	}
}

// savedFiles lists the files below a directory with sizes and times, and checks their modes.
func savedFiles(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[info.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
		list = append(list, fmt.Sprint(info.Name(), info.Size(), info.ModTime().UnixNano()))
		return nil
	})
	if err != nil || len(list) < 3 {
		t.Fatalf("files of the snapshot = %v, %v, want at least 3", list, err)
	}
	return strings.Join(list, ", ")
}

// warnings returns the warnings logged so far.
func warnings(log *logtest.Log) []string {
	var found []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") {
			found = append(found, line)
		}
	}
	return found
}

// TestBoxesAreBootedWhenTheyCannotBeRestored checks that if a snapshot is damaged, boxes are booted, and one warning is
// logged.
func TestBoxesAreBootedWhenTheyCannotBeRestored(t *testing.T) {
	for name, damage := range map[string]func(saved, packages string) error{
		"removed":   func(saved, _ string) error { return os.RemoveAll(saved) },
		"truncated": func(saved, _ string) error { return os.Truncate(filepath.Join(saved, "pages.img"), 1<<20) },
		"corrupted": func(saved, _ string) error {
			return os.WriteFile(filepath.Join(saved, "checkpoint.img"), []byte("x"), 0o600)
		},
		"other packages": func(_, packages string) error {
			return os.WriteFile(filepath.Join(packages, "new.py"), nil, 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, l := shortDir(t), &logtest.Log{}
			var packages string
			d := specObserver{newDriver(t), func(s executor.Spec) { packages = s.Mounts[0].Source }}
			p := startPreloaded(t, d, executor.PoolOptions{Dir: dir, Log: slog.New(slog.NewTextHandler(l, nil))})
			if v := runOnce(t, p, "a", "print(1)"); v.Output != "1\n" {
				t.Fatalf("program in the first box = %+v, want the output 1", v)
			}
			saved := filepath.Join(dir, "test", "saved", "0")
			if err := damage(saved, packages); err != nil {
				t.Fatal(err)
			}
			for _, tenant := range []string{"b", "c"} {
				if v := runOnce(t, p, tenant, imported); !strings.HasPrefix(v.Output, "True ") {
					t.Errorf("program in the box of %s = %+v, want the module imported ahead", tenant, v)
				}
			}
			if got := warnings(l); len(got) != 1 || !strings.Contains(got[0], "boxes are booted for a while") {
				t.Errorf("warnings = %q, want one with \"boxes are booted for a while\"", got)
			}
			if s := p.Stats(); s.Created != 3 || s.Restored != 0 || s.CreateErrors != 0 {
				t.Errorf("Stats = %+v, want 3 boxes created without errors and none restored", s)
			}
			if _, err := os.Stat(saved); !os.IsNotExist(err) {
				t.Errorf("stat of the damaged snapshot = %v, want that it does not exist", err)
			}
		})
	}
}

// specObserver is a driver that passes the Spec of each box to observe.
type specObserver struct {
	executor.Driver
	observe func(executor.Spec)
}

func (s specObserver) Create(ctx context.Context, spec executor.Spec) (executor.Box, error) {
	s.observe(spec)
	return s.Driver.Create(ctx, spec)
}

// TestEngineThatCannotSnapshot checks that if the engine cannot take or restore snapshots, boxes are booted.
func TestEngineThatCannotSnapshot(t *testing.T) {
	for _, command := range []string{"checkpoint", "restore"} {
		t.Run(command, func(t *testing.T) {
			dir, l := shortDir(t), &logtest.Log{}
			wrapper := filepath.Join(dir, "runsc")
			const text = "#!/bin/sh\nfor a; do [ \"$a\" = %s ] && { echo not supported >&2; exit 9; }; done\n" +
				"exec %s \"$@\"\n"
			script := fmt.Sprintf(text, command, engine(t))
			if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			d, err := gvisor.New(gvisor.Options{Runsc: wrapper, Dir: filepath.Join(dir, "g")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			p := startPreloaded(t, d, executor.PoolOptions{Dir: dir, Log: slog.New(slog.NewTextHandler(l, nil))})
			for _, tenant := range []string{"a", "b"} {
				if v := runOnce(t, p, tenant, imported); !strings.HasPrefix(v.Output, "True ") {
					t.Errorf("program in the box of %s = %+v, want the module imported ahead", tenant, v)
				}
			}
			if got := warnings(l); len(got) != 1 || !strings.Contains(got[0], "not supported") {
				t.Errorf("warnings = %q, want one with the engine's output", got)
			}
		})
	}
}

// TestLimitsOfARestoredBox checks that a restored box has its own limits, which do not affect later boxes.
func TestLimitsOfARestoredBox(t *testing.T) {
	p := startPreloaded(t, newDriver(t), executor.PoolOptions{})
	if p.Info().Limits != "cgroup" {
		t.Skip("no usable cgroups on this host")
	}
	runOnce(t, p, "a", "print(1)")
	box := acquire(t, p, "b", executor.Limits{MemoryMB: 64})
	v := run(t, box, `
import os, time
for _ in range(12):
    if not os.fork():
        x = bytearray(50 << 20)
        time.sleep(60)
time.sleep(60)`)
	if v.Error == nil || v.Error.Code != errcode.MemoryLimit {
		t.Errorf("program that uses 12 times 50 MB = %+v, want %s", v, errcode.MemoryLimit)
	}
	box.Release()
	if v := runOnce(t, p, "c", imported); !strings.HasPrefix(v.Output, "True ") {
		t.Errorf("program in the next box = %+v, want the module imported ahead", v)
	}
	if s := p.Stats(); s.Restored != 2 {
		t.Errorf("Stats = %+v, want 2 boxes restored", s)
	}
}

func TestRestoredBoxesLeakNothing(t *testing.T) {
	dir := shortDir(t)
	p := startPreloaded(t, newDriverIn(t, filepath.Join(dir, "gv")), executor.PoolOptions{
		Dir: filepath.Join(dir, "pool"), Reuse: executor.ReuseNever,
	})
	var before usage
	for i := range 10 {
		runOnce(t, p, fmt.Sprint("tenant-", i), "print(1)")
		if i == 1 {
			before = usageAtRest(t, p, dir)
		}
	}
	if after := usageAtRest(t, p, dir); after != before {
		t.Errorf("usage after ten boxes = %+v, want %+v, as after two boxes", after, before)
	}
	if s := p.Stats(); s.Restored != 10 {
		t.Errorf("Stats = %+v, want 10 boxes restored", s)
	}
}
