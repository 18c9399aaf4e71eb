package executortest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/runner"
)

// TestDriver tests the contract of drivers. It calls newDriver once for each test; newDriver may skip the test.
// Tests of features that the host or the driver does not have are skipped, with the reason.
func TestDriver(t *testing.T, newDriver func(t *testing.T) executor.Driver) {
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, newDriver) })
	t.Run("streams", func(t *testing.T) { testStreams(t, newDriver) })
	t.Run("preload", func(t *testing.T) { testPreload(t, newDriver) })
	testProgramContract(t, newDriver)
	t.Run("carry-over", func(t *testing.T) { testCarryOver(t, newDriver) })
	t.Run("leaks", func(t *testing.T) { testLeaks(t, newDriver) })
}

// testProgramContract tests the part of the contract that concerns programs.
func testProgramContract(t *testing.T, newDriver driverFunc) {
	t.Helper()
	t.Run("programs", func(t *testing.T) { testPrograms(t, newDriver) })
	t.Run("tools", func(t *testing.T) { testTools(t, newDriver) })
	t.Run("views", func(t *testing.T) { testViews(t, newDriver) })
	t.Run("state", func(t *testing.T) { testState(t, newDriver) })
	t.Run("memory", func(t *testing.T) { testMemory(t, newDriver) })
	t.Run("packages", func(t *testing.T) { testPackages(t, newDriver) })
	t.Run("network", func(t *testing.T) { testNetwork(t, newDriver) })
	t.Run("stops", func(t *testing.T) { testStops(t, newDriver) })
	t.Run("hostile", func(t *testing.T) { testHostile(t, newDriver) })
	t.Run("limits", func(t *testing.T) { testLimits(t, newDriver) })
	t.Run("isolation", func(t *testing.T) { testIsolation(t, newDriver) })
}

// TestRestored tests the part of the contract that concerns programs, in boxes that are restored from the snapshot
// of a preloaded box.
func TestRestored(t *testing.T, newDriver func(t *testing.T) executor.Driver) {
	testProgramContract(t, func(t *testing.T) executor.Driver { t.Helper(); return restoring{newDriver(t)} })
	t.Run("copies", func(t *testing.T) { testCopies(t, newDriver) })
}

// restoring marks a driver whose boxes must be restored.
type restoring struct{ executor.Driver }

type driverFunc = func(t *testing.T) executor.Driver

// box is a box for the programs of one test. If it has been destroyed, runProgram replaces it.
type box struct {
	driver       executor.Driver
	spec         executor.Spec
	single       *executor.Single
	info         executor.Info
	separateUser bool // the runner and the programs run as different users
}

// open starts a box and destroys it at the end of the test. If the driver is restoring, it restores the box.
func open(t *testing.T, driver executor.Driver, spec executor.Spec) *box {
	t.Helper()
	spec.Owner = cmp.Or(spec.Owner, "executortest")
	spec.Name = cmp.Or(spec.Name, "box-"+strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	if spec.Workspace == "" {
		spec.Workspace = workspace(t)
	}
	marked, restored := driver.(restoring)
	if restored {
		driver = marked.Driver
	}
	b := &box{driver: driver, spec: spec, separateUser: true}
	if prober, ok := driver.(executor.Prober); ok {
		info, err := prober.Probe(t.Context())
		if err != nil {
			t.Fatalf("Probe() = %v, want nil", err)
		}
		b.info = info
	}
	if b.info.Tier != "" { // only drivers of real sandboxes report a tier; a fake has no mounts
		b.spec.Views = openDir(t)
	}
	if restored {
		b.single = template(t, driver, b.spec, "asyncio", "email.message", "ssl", "uuid")
	}
	b.start(t)
	if restored && !b.single.Restored() {
		t.Error("Restored() = false, want true")
	}
	t.Cleanup(func() {
		if err := b.single.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return b
}

// template creates and closes a preloaded box. The method Another of the result restores boxes from its
// snapshot.
func template(t *testing.T, driver executor.Driver, spec executor.Spec, preload ...string) *executor.Single {
	t.Helper()
	spec.Workspace = workspace(t)
	if spec.Views != "" {
		spec.Views = openDir(t)
	}
	single, err := executor.NewPreloaded(t.Context(), driver, spec, preload, filepath.Join(t.TempDir(), "saved"))
	if err != nil {
		t.Fatalf("NewPreloaded() = %v, want nil", err)
	}
	if err := single.Close(t.Context()); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	return single
}

// start starts a box for b, and finds out whether programs have a separate user.
func (b *box) start(t *testing.T) {
	t.Helper()
	start := func(ctx context.Context, spec executor.Spec) (*executor.Single, error) {
		return executor.NewSingle(ctx, b.driver, spec)
	}
	if b.single != nil { // the way a pool creates its later boxes
		start = b.single.Another
	}
	single, err := start(t.Context(), b.spec)
	if err != nil {
		t.Fatalf("create a box = %v, want nil", err)
	}
	b.single = single
	v := b.run(t, "import os; os.getuid() != os.stat('/proc/%d' % os.getppid()).st_uid")
	b.separateUser = string(v.Result) == "true"
}

// workspace returns a directory that belongs to the user of programs, as a pool makes it.
func workspace(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	err := os.Chmod(dir, 0o700)
	if uid := executor.DefaultGuest().UID; os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(dir, uid, uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// openDir returns a directory that programs of any user can write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o777), makeReachable(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runProgram runs a program in the box, or in a new box if the box was destroyed. An error fails the test.
func (b *box) runProgram(t *testing.T, p executor.Program, hooks executor.Hooks) executor.Verdict {
	t.Helper()
	p.TaskID = cmp.Or(p.TaskID, "task")
	p.Limits.Timeout = cmp.Or(p.Limits.Timeout, time.Minute*Slow(t))
	if !b.single.Alive() {
		b.start(t)
	}
	v, err := b.single.Run(t.Context(), p, hooks)
	if err != nil {
		t.Fatalf("Run() = %v, want nil", err)
	}
	return v
}

// run runs code in the box, or in a new box if the box was destroyed.
func (b *box) run(t *testing.T, code string) executor.Verdict {
	t.Helper()
	return b.runProgram(t, executor.Program{Code: code}, executor.Hooks{})
}

// checkNext fails the test unless the next program runs normally.
func (b *box) checkNext(t *testing.T) {
	t.Helper()
	code := "print('next')\nsorted(__import__('os').listdir(__import__('os').environ['TMPDIR']))"
	v := b.run(t, code)
	if v.Status != executor.Succeeded || v.Output != "next\n" || string(v.Result) != "[]" || v.Dirty {
		t.Errorf("next program = %s, want success with nothing in TMPDIR", format(v))
	}
}

// Slow returns the factor for timeouts on slow machines: CODEFLEET_TEST_SLOW, or 1.
func Slow(tb testing.TB) time.Duration {
	tb.Helper()
	text := os.Getenv("CODEFLEET_TEST_SLOW")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("CODEFLEET_TEST_SLOW = %q, want a positive integer", text)
	}
	return time.Duration(n)
}

// format returns a verdict as text for failure messages.
func format(v executor.Verdict) string {
	v.Output, v.Stderr = truncate(v.Output), truncate(v.Stderr)
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return truncate(string(text))
}

func truncate(s string) string {
	if len(s) > 2000 {
		return s[:2000] + " …"
	}
	return s
}

func testLifecycle(t *testing.T, newDriver driverFunc) {
	t.Run("destroy twice", func(t *testing.T) {
		b, err := newDriver(t).Create(t.Context(), spec(t, "twice"))
		if err != nil {
			t.Fatalf("Create() = %v, want nil", err)
		}
		for range 2 {
			if err := b.Destroy(t.Context()); err != nil {
				t.Errorf("Destroy() = %v, want nil", err)
			}
		}
		if _, err := b.Exec(t.Context(), []string{"/bin/true"}); err == nil {
			t.Error("Exec() in a destroyed box = nil, want an error")
		}
	})
	t.Run("four at once", func(t *testing.T) {
		driver := newDriver(t)
		var group sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			group.Go(func() {
				single, err := executor.NewSingle(t.Context(), driver, spec(t, name))
				if err != nil {
					t.Errorf("NewSingle() = %v, want nil", err)
					return
				}
				v, err := single.Run(t.Context(), executor.Program{TaskID: name, Code: "6*7"}, executor.Hooks{})
				if err != nil || string(v.Result) != "42" {
					t.Errorf("Run() = %s, %v, want 42", format(v), err)
				}
				if err := single.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}
			})
		}
		group.Wait()
	})
	t.Run("destroyed while a program runs", func(t *testing.T) {
		single, err := executor.NewSingle(t.Context(), newDriver(t), spec(t, "cut"))
		if err != nil {
			t.Fatal(err)
		}
		var closeErr error
		v, err := single.Run(t.Context(), executor.Program{TaskID: "cut", Code: "print('on')\nwhile True: pass"},
			executor.Hooks{
				Output: func(string, []byte) { closeErr = single.Close(t.Context()) },
			})
		if !errors.Is(err, executor.ErrSandboxDied) || closeErr != nil {
			t.Errorf("Run() = %s, %v; Close() = %v; want %v from Run, nil from Close",
				format(v), err, closeErr, executor.ErrSandboxDied)
		}
		if single.Alive() {
			t.Error("Alive() after Close = true, want false")
		}
		if _, err := single.Run(t.Context(), executor.Program{Code: "1"}, executor.Hooks{}); err == nil {
			t.Error("Run() in a destroyed box = nil, want an error")
		}
	})
}

func spec(t *testing.T, name string) executor.Spec {
	t.Helper()
	return executor.Spec{Name: name, Owner: "executortest", Workspace: workspace(t), Env: runner.Env()}
}

// testStreams checks the standard streams and the exit code of a process that is not the runner.
func testStreams(t *testing.T, newDriver driverFunc) {
	b, err := newDriver(t).Create(t.Context(), spec(t, "streams"))
	if err != nil {
		t.Fatalf("Create() = %v, want nil", err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Destroy() = %v, want nil", err)
		}
	})
	python := executor.DefaultGuest().Python
	if g, ok := b.(executor.GuestReporter); ok {
		python = g.Guest().Python
	}
	const echo = `
import os, sys
while True:
    data = os.read(0, 65536)
    if not data: break
    while data: data = data[os.write(1, data):]
os.write(2, b'stderr')
sys.exit(7)`
	session, err := b.Exec(t.Context(), []string{python, "-I", "-S", "-c", echo})
	if err != nil {
		t.Fatalf("Exec() = %v, want nil", err)
	}
	for i := range 200 { // bytes arrive in order and without buffering
		line := bytes.Repeat([]byte{byte(i)}, i+1)
		got := make([]byte, len(line))
		if _, err := session.Stdin().Write(line); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(session.Stdout(), got); err != nil || !bytes.Equal(got, line) {
			t.Fatalf("round trip %d = %x, %v, want %x", i, got, err, line)
		}
	}
	sent := bytes.Repeat([]byte{0, 10, 13, 26, 255}, 6<<20/5) // 6 MiB with bytes that terminals would change
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := session.Stdin().Write(sent); err != nil {
			t.Errorf("Write() = %v, want nil", err)
		}
		if err := session.Stdin().Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	var stderr []byte
	group.Go(func() { stderr, _ = io.ReadAll(session.Stderr()) })
	got, err := io.ReadAll(session.Stdout())
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("read %d bytes of standard output, %v, want the %d bytes that were sent", len(got), err, len(sent))
	}
	group.Wait()
	if string(stderr) != "stderr" {
		t.Errorf("standard error = %q, want %q", stderr, "stderr")
	}
	if code, err := session.Wait(); code != 7 || err != nil {
		t.Errorf("Wait() = %d, %v, want 7", code, err)
	}
}
