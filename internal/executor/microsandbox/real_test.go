package microsandbox_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// engine returns CODEFLEET_MSB and CODEFLEET_MSB_IMAGE, which `make test-microsandbox` sets in its machine. If they
// are not set, it skips the test, or fails it if CODEFLEET_REQUIRE_MICROSANDBOX is 1.
func engine(tb testing.TB) (msb, image string) {
	tb.Helper()
	msb, image = os.Getenv("CODEFLEET_MSB"), os.Getenv("CODEFLEET_MSB_IMAGE")
	if msb == "" || image == "" {
		if os.Getenv("CODEFLEET_REQUIRE_MICROSANDBOX") == "1" {
			tb.Fatal("CODEFLEET_MSB and CODEFLEET_MSB_IMAGE are not set")
		}
		tb.Skip("CODEFLEET_MSB and CODEFLEET_MSB_IMAGE are not set: see make test-microsandbox")
	}
	return msb, image
}

// realDir is shared by all tests, so that the image is loaded once. Its path is short because of sockets.
var realDir = filepath.Join(os.TempDir(), "cf-msb")

func newReal(tb testing.TB) *microsandbox.Driver {
	tb.Helper()
	msb, image := engine(tb)
	d, err := microsandbox.New(microsandbox.Options{
		Msb: msb, Dir: realDir, Image: image, MemoryMB: 900, Timeout: executortest.Slow(tb) * 5 * time.Second,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close = %v, want nil", err)
		}
		if left, err := os.ReadDir(filepath.Join(realDir, "owners")); err != nil || len(left) > 0 {
			tb.Errorf("owners left in the state directory: %v, %v, want none", left, err)
		}
	})
	return d
}

func TestContract(t *testing.T) {
	engine(t)
	executortest.TestDriver(t, func(t *testing.T) executor.Driver { t.Helper(); return newReal(t) })
}

func TestRealProbe(t *testing.T) {
	d := newReal(t)
	begun := time.Now()
	info, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v in %s", info, time.Since(begun).Round(time.Millisecond))
	if info.Driver != "microsandbox" || info.Tier != "microsandbox" || info.EngineVersion != microsandbox.Version ||
		!info.MultiTenant {
		t.Errorf("Probe = %+v; want microsandbox for several tenants", info)
	}
}

// run runs a program in a box as root and returns its output.
func run(t *testing.T, box executor.Box, code string) string {
	t.Helper()
	s, err := box.Exec(t.Context(), []string{box.(executor.GuestReporter).Guest().Python, "-I", "-S", "-c", code})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs []byte
	var reading sync.WaitGroup
	reading.Go(func() { errs, _ = io.ReadAll(s.Stderr()) })
	reading.Go(func() { out, _ = io.ReadAll(s.Stdout()) })
	reading.Wait()
	if code, err := s.Wait(); code != 0 || err != nil {
		t.Fatalf("Wait = %d, %v, want 0: %s", code, err, errs)
	}
	return strings.TrimSpace(string(out))
}

func newRealBox(t *testing.T, d *microsandbox.Driver, spec executor.Spec) executor.Box {
	t.Helper()
	spec.Owner, spec.Env = "test", []string{"PATH=/usr/bin:/bin"}
	box, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Destroy = %v, want nil", err)
		}
	})
	return box
}

// TestRealFiles checks that the program and the host see each other's changes to files while the box runs.
func TestRealFiles(t *testing.T) {
	d := newReal(t)
	ws, modules := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(modules, "a.py"), "1")
	write(filepath.Join(ws, "old"), "old")
	box := newRealBox(t, d, executor.Spec{
		Name: "files", Workspace: ws,
		Mounts: []executor.Mount{{Source: modules, Target: "/workspace/servers", ReadOnly: true}},
	})
	got := run(t, box, "import os; print(sorted(os.listdir('/workspace')), open('/workspace/old').read(), "+
		"os.path.exists('/workspace/new'), os.stat('/workspace/old').st_uid)")
	if want := "['old', 'servers'] old False 65534"; got != want {
		t.Errorf("files before the changes = %s, want %s", got, want)
	}
	write(filepath.Join(ws, "old"), "changed")
	write(filepath.Join(ws, "new"), "new")
	write(filepath.Join(modules, "b.py"), "2")
	if err := os.Symlink("new", filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	const dropCaches = "import os; f = os.open('/proc/sys/vm/drop_caches', os.O_WRONLY); os.pwrite(f, b'2', 0); "
	got = run(t, box, dropCaches+"print(sorted(os.listdir('/workspace')), open('/workspace/old').read(), "+
		"open('/workspace/link').read(), sorted(os.listdir('/workspace/servers')))")
	if want := "['link', 'new', 'old', 'servers'] changed new ['a.py', 'b.py']"; got != want {
		t.Errorf("files after the host's changes = %s, want %s", got, want)
	}
	run(t, box, `
import os
try: open('/workspace/servers/x', 'w'); raise SystemExit('writable')
except OSError: pass
os.setgroups([]); os.setgid(65534); os.setuid(65534); os.umask(0o022)
open('/workspace/made', 'w').write('made'); os.chmod('/workspace/made', 0o750)
os.mkdir('/workspace/dir'); os.symlink('../made', '/workspace/dir/link'); os.mkfifo('/workspace/fifo')
open('/workspace/old', 'a').write(', and more'); os.remove('/workspace/new')
`)
	if info, err := os.Lstat(filepath.Join(ws, "made")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("stat of made = %v, %v, want mode 0750", info, err)
	}
	if to, err := os.Readlink(filepath.Join(ws, "dir", "link")); err != nil || to != "../made" {
		t.Errorf("target of dir/link = %q, %v, want ../made", to, err)
	}
	if text, err := os.ReadFile(filepath.Join(ws, "old")); string(text) != "changed, and more" {
		t.Errorf("old = %q, %v; want \"changed, and more\"", text, err)
	}
	if _, err := os.Lstat(filepath.Join(ws, "new")); !os.IsNotExist(err) {
		t.Errorf("stat of new = %v, want that it does not exist", err)
	}
}
