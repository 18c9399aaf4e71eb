package microsandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
	"github.com/codefleet/codefleet/internal/filelock"
)

func create(t *testing.T, d *microsandbox.Driver, name string) executor.Box {
	t.Helper()
	box, err := d.Create(t.Context(), executor.Spec{Name: name, Owner: "o", Env: []string{"PATH=/usr/bin:/bin"}})
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

func start(t *testing.T, box executor.Box, argv ...string) executor.Session {
	t.Helper()
	s, err := box.Exec(t.Context(), argv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStreams(t *testing.T) {
	box := create(t, fake(t), "w0")
	s := start(t, box, "/bin/sh", "-c", "cat; echo stderr >&2; exit 7")
	sent := bytes.Repeat([]byte{0, 10, 13, 255}, 1<<18)
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := s.Stdin().Write(sent); err != nil {
			t.Errorf("Write = %v, want nil", err)
		}
		if err := s.Stdin().Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	var stderr []byte
	group.Go(func() { stderr, _ = io.ReadAll(s.Stderr()) })
	got, err := io.ReadAll(s.Stdout())
	group.Wait()
	if err != nil || !bytes.Equal(got, sent) || string(stderr) != "stderr\n" {
		t.Errorf("standard output has %d bytes, %v, standard error %q; want the %d bytes sent, and %q",
			len(got), err, stderr, len(sent), "stderr\n")
	}
	if code, err := s.Wait(); code != 7 || err != nil {
		t.Errorf("Wait = %d, %v, want 7", code, err)
	}
	if _, err := s.Stdin().Write([]byte("x")); err == nil {
		t.Error("Write to a process that has ended = nil, want an error")
	}
}

func TestSessionsAreIndependent(t *testing.T) {
	box := create(t, fake(t), "w0")
	idle := start(t, box, "/bin/cat")
	if s := start(t, box, "/bin/sh", "-c", "kill -9 $$"); true {
		_, _ = io.ReadAll(s.Stdout())
		if code, err := s.Wait(); code != 137 || err != nil {
			t.Errorf("Wait = %d, %v, want 137", code, err)
		}
	}
	if _, err := box.Exec(t.Context(), []string{"/no/such/program"}); err == nil ||
		!strings.Contains(err.Error(), "not_found") {
		t.Errorf("Exec of a missing file = %v; want not_found", err)
	}
	if _, err := idle.Stdin().Write([]byte("still here")); err != nil {
		t.Errorf("Write to the idle session = %v, want nil", err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(idle.Stdout(), got); string(got) != "still here" || err != nil {
		t.Errorf("read from the idle session = %q, %v, want \"still here\"", got, err)
	}
}

func TestDestroyEndsSessions(t *testing.T) {
	d := fake(t)
	box := create(t, d, "w0")
	s := start(t, box, "/bin/sh", "-c", "echo on; exec sleep 1000")
	first := make([]byte, 3)
	if _, err := io.ReadFull(s.Stdout(), first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := box.Destroy(t.Context()); err != nil {
			t.Errorf("Destroy = %v, want nil", err)
		}
	}
	if _, err := io.ReadAll(s.Stdout()); err != nil {
		t.Errorf("Stdout after Destroy = %v, want its end", err)
	}
	if code, err := s.Wait(); code != 137 || err != nil {
		t.Errorf("Wait = %d, %v, want 137", code, err)
	}
	if _, err := box.Exec(t.Context(), []string{"/bin/true"}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Exec in a destroyed box = %v, want ErrClosed", err)
	}
	create(t, d, "w0") // the name can be used again
}

// TestBoxDies checks that when a machine is killed from outside, its sessions end at once, and its name can be used
// again.
func TestBoxDies(t *testing.T) {
	for name, newDriver := range map[string]func(t *testing.T) *microsandbox.Driver{
		"fake": func(t *testing.T) *microsandbox.Driver { t.Helper(); return fake(t) },
		"real": func(t *testing.T) *microsandbox.Driver { t.Helper(); return newReal(t) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			box := create(t, d, "crash")
			s := start(t, box, "/bin/cat")
			d.KillMachine("o.crash")
			if _, err := io.ReadAll(s.Stdout()); err != nil {
				t.Errorf("Stdout = %v, want its end", err)
			}
			if code, err := s.Wait(); code != 137 || err != nil {
				t.Errorf("Wait = %d, %v, want 137", code, err)
			}
			if _, err := box.Exec(t.Context(), []string{"/bin/true"}); err == nil {
				t.Error("Exec in a dead box = nil, want an error")
			}
			if err := box.Destroy(t.Context()); err != nil {
				t.Errorf("Destroy of a dead box = %v, want nil", err)
			}
			create(t, d, "crash")
		})
	}
}

// TestDestroyWithoutMsb checks that Destroy kills a machine that msb does not remove, and reports that it is still
// listed.
func TestDestroyWithoutMsb(t *testing.T) {
	home := ""
	d := fake(t, func(o *microsandbox.Options) { home = o.Dir })
	box := create(t, d, "w0")
	unremovable := filepath.Join(home, "unremovable")
	if err := os.WriteFile(unremovable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := box.Destroy(t.Context()); err == nil || !strings.Contains(err.Error(), "msb still lists it") {
		t.Errorf("Destroy while msb cannot remove a sandbox = %v, want that msb still lists it", err)
	}
	pid, late := fakePID(home, "o.w0"), time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !fakeEnded(pid) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the machine runs, want it killed")
		}
	}
	if err := os.Remove(unremovable); err != nil {
		t.Fatal(err)
	}
}

func TestCreateThatFails(t *testing.T) {
	home := ""
	d := fake(t, func(o *microsandbox.Options) { home = o.Dir })
	if _, err := d.Create(t.Context(), executor.Spec{Name: "fails", Owner: "o"}); err == nil ||
		!strings.Contains(err.Error(), "boot failed") {
		t.Errorf("Create = %v; want boot failed", err)
	}
	if _, err := d.Create(t.Context(), executor.Spec{Name: "vanishes", Owner: "o"}); err == nil ||
		!strings.Contains(err.Error(), "connect to the agent") {
		t.Errorf("Create of a box that dies at once = %v; want an error from the connection to the agent", err)
	}
	if left, err := os.ReadDir(filepath.Join(home, "fake")); err != nil || len(left) > 0 {
		t.Errorf("sandboxes left: %v, %v, want none", left, err)
	}
	create(t, d, "w0")
	if _, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "o"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create with a name in use = %v, want ErrExist", err)
	}
	for _, spec := range []executor.Spec{
		{Name: "a/b", Owner: "o"},
		{Name: "a", Owner: "../o"},
		{Name: "a", Owner: ""},
		{Name: "a", Owner: "o", Workspace: "/a:b"},
	} {
		if _, err := d.Create(t.Context(), spec); err == nil {
			t.Errorf("Create(%+v) = nil, want an error", spec)
		}
	}
}

// TestCreateAfterAFailure checks that a name can be used again after msb could neither create nor remove its sandbox.
func TestCreateAfterAFailure(t *testing.T) {
	home := ""
	d := fake(t, func(o *microsandbox.Options) { home = o.Dir })
	create(t, d, "w1")
	broken := filepath.Join(home, "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "o"}); err == nil ||
			!strings.Contains(err.Error(), "database is locked") {
			t.Errorf("Create with a broken msb = %v, want its error", err)
		}
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	create(t, d, "w0")
	if _, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "o"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create with a name in use = %v, want ErrExist", err)
	}
}

// TestSweep checks that Sweep removes what a dead worker left behind, and nothing that belongs to running workers.
func TestSweep(t *testing.T) {
	home := ""
	first := fake(t, func(o *microsandbox.Options) { home = o.Dir })
	sameMsb := func(o *microsandbox.Options) { o.Dir = home }
	second := fake(t, sameMsb)
	left, err := first.Create(t.Context(), executor.Spec{Name: "w0", Owner: "dead"})
	if err != nil {
		t.Fatal(err)
	}
	create(t, first, "w0")
	if err := second.Sweep(t.Context(), "dead"); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("Sweep of a locked owner = %v, want ErrLocked", err)
	}
	third := fake(t, sameMsb)
	mine, err := third.Create(t.Context(), executor.Spec{Name: "w1", Owner: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Sweep(t.Context(), "dead"); err != nil {
		t.Errorf("Sweep by the owner = %v, want nil", err)
	}
	if fakePID(home, "dead.w0") == 0 {
		t.Error("Sweep removed a box of its own driver, want it kept")
	}
	if err := first.Close(); err != nil { // like the death of its process, this leaves its boxes running
		t.Fatal(err)
	}
	if err := second.Sweep(t.Context(), "dead"); err != nil {
		t.Errorf("Sweep = %v, want nil", err)
	}
	names, err := os.ReadDir(filepath.Join(home, "fake"))
	if err != nil || fmt.Sprint(names) != "[d mine.w1/ d o.w0/]" {
		t.Errorf("sandboxes left: %v, %v, want the boxes of other owners", names, err)
	}
	if err := left.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy of a swept box = %v, want nil", err)
	}
	if err := errors.Join(third.Sweep(t.Context(), "mine"), mine.Destroy(t.Context())); err != nil {
		t.Errorf("Sweep and Destroy by another driver = %v, want nil", err)
	}
}

// TestRelativePaths checks that msb and images are found by paths that are relative to the worker's directory, although
// msb runs in another one.
func TestRelativePaths(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(shortDir(t))
	if err := errors.Join(os.MkdirAll("images/python", 0o700), os.WriteFile("image.tar", nil, 0o600),
		os.Symlink(self, "msb")); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"./image.tar", "image.tar", "images/python"} {
		t.Run(image, func(t *testing.T) {
			dir := shortDir(t)
			create(t, newDriver(t, microsandbox.Options{Msb: "./msb", Dir: dir, Image: image}), "w0")
			loaded, err := os.ReadFile(filepath.Join(dir, "loaded"))
			if err != nil || !strings.HasSuffix(string(loaded), ".tar") {
				t.Errorf("msb has loaded %q, %v; want the image's archive", loaded, err)
			}
		})
	}
}

// TestReasons checks that each problem of a host is reported with its reason and a fix.
func TestReasons(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(shortDir(t), "msb")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(shortDir(t), "msb")
	if err := os.Symlink(self, good); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(shortDir(t), "image.tar")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 10<<30); err != nil {
		t.Fatal(err)
	}
	const modern = `[ "$1" = --version ] && { echo "msb ` + microsandbox.Version + `"; exit; }; `
	for name, test := range map[string]struct {
		opts   microsandbox.Options
		reason executor.Reason
		want   string
	}{
		"missing": {microsandbox.Options{Msb: "/no/such/msb"}, executor.ReasonEngineMissing, "npm install"},
		"not on PATH": {
			microsandbox.Options{Msb: "no-such-msb"}, executor.ReasonEngineMissing, "npm install",
		},
		"not executable": {
			microsandbox.Options{Msb: large}, executor.ReasonEngineCrashed, "permission denied",
		},
		"old": {
			microsandbox.Options{Msb: script("echo msb 0.6.18")},
			executor.ReasonEngineOld,
			"at least 0.7.2",
		},
		"something else": {microsandbox.Options{Msb: script("echo hello")}, executor.ReasonEngineOld, "hello"},
		"crashes": {
			microsandbox.Options{Msb: script("kill -SEGV $$")},
			executor.ReasonEngineCrashed,
			"segmentation",
		},
		"panics": {
			microsandbox.Options{Msb: script("echo thread panicked >&2; exit 101")},
			executor.ReasonEngineCrashed,
			"thread panicked",
		},
		"crashes later": {
			microsandbox.Options{Msb: script(modern + "kill -ABRT $$")}, executor.ReasonEngineCrashed, "crashed",
		},
		"no image": {
			microsandbox.Options{Msb: good, Image: "no/such:image"},
			executor.ReasonImageMissing,
			"not found: no/such:image",
		},
		"no image file": {
			microsandbox.Options{Msb: good, Image: "/no/such/image.tar"}, executor.ReasonImageMissing, "no such file",
		},
		"a fetched image of 10 GB": {
			microsandbox.Options{Msb: good, Image: "python:large"}, executor.ReasonImageTooLarge, "10240 MB",
		},
		"a fetched image of 10 GB without a tag": {
			microsandbox.Options{Msb: good, Image: "large"}, executor.ReasonImageTooLarge, "10240 MB",
		},
		"an image of 10 GB": {microsandbox.Options{Msb: good, Image: large}, executor.ReasonImageTooLarge, "10240 MB"},
	} {
		t.Run(name, func(t *testing.T) {
			test.opts.Dir = shortDir(t)
			d := newDriver(t, test.opts)
			_, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "o"})
			if test.reason == executor.ReasonEngineOld {
				_, _, err = d.EngineVersion(t.Context())
			}
			if got := executor.ReasonOf(err); got != test.reason || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ReasonOf(%v) = %s, want %s, and an error with %q", err, got, test.reason, test.want)
			}
			if err := d.Sweep(t.Context(), "o"); err != nil && test.opts.Msb == good {
				t.Errorf("Sweep = %v, want nil", err)
			}
		})
	}
}

// TestHangingMsb checks that an msb command that hangs times out.
func TestHangingMsb(t *testing.T) {
	path := filepath.Join(shortDir(t), "msb")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 1000"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, microsandbox.Options{Msb: path, Dir: shortDir(t), Timeout: 50 * time.Millisecond})
	if _, _, err := d.EngineVersion(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("EngineVersion = %v, want a timeout after 50ms", err)
	}
}

// TestConcurrentCalls checks that the number of concurrent msb commands is limited. A command that waits for others
// ends with its context. A slow fetch of an image does not block other commands.
func TestConcurrentCalls(t *testing.T) {
	const script = `#!/bin/sh
cd "$MSB_HOME"
case $1 in
image) echo '[]'; exit;;
pull) : >pulling; while [ ! -e go ]; do :; done; exit 1;;
--version)
	: >run.$$; ls run.* | wc -l >>counts; : >counted.$$
	while [ ! -e go ]; do :; done; rm run.$$; echo msb 0.7.2;;
esac
`
	path, dir := filepath.Join(shortDir(t), "msb"), shortDir(t)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, microsandbox.Options{Msb: path, Dir: dir})
	var calls sync.WaitGroup
	defer calls.Wait()
	defer os.WriteFile(filepath.Join(dir, "go"), nil, 0o600)
	for i := range 3 { // fetch images
		calls.Go(func() { _, _ = d.Interpreter(t.Context(), fmt.Sprint("slow:", i)) })
	}
	await(t, dir, "pulling", 1)
	limit := d.MaxCalls()
	for range limit + 3 {
		calls.Go(func() {
			if _, _, err := d.EngineVersion(t.Context()); err != nil {
				t.Errorf("EngineVersion = %v, want nil", err)
			}
		})
	}
	await(t, dir, "counted.*", limit)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	if _, _, err := d.EngineVersion(ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("EngineVersion with an ended context = %v; want a deadline error", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "counts"))
	if err != nil {
		t.Fatal(err)
	}
	var peak, n int
	for line := range strings.FieldsSeq(string(text)) {
		if _, err := fmt.Sscan(line, &n); err != nil {
			t.Fatal(err)
		}
		peak = max(peak, n)
	}
	if peak != limit {
		t.Errorf("%d calls ran at once, want %d", peak, limit)
	}
}

// await waits until at least count files match.
func await(t *testing.T, dir, pattern string, count int) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) >= count {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d files match %s, want %d", len(found), pattern, count)
		}
	}
}
