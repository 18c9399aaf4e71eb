package gvisor_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/gvisor"
	"github.com/codefleet/codefleet/internal/filelock"
)

func TestProbe(t *testing.T) {
	d := newDriver(t)
	info, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Driver != "gvisor" || info.Tier != "gvisor" || info.EngineVersion == "" ||
		info.Environment != "host /usr" || info.MultiTenant {
		t.Errorf("Probe = %+v; want gvisor on the host's /usr, for one tenant", info)
	}
	if os.Geteuid() == 0 && info.Limits != "cgroup" {
		t.Errorf("limits of root = %q, want cgroup", info.Limits)
	}
	if again, err := d.Probe(t.Context()); err != nil || again != info {
		t.Errorf("second Probe = %+v, %v, want the first", again, err)
	}
}

func TestProbeErrors(t *testing.T) {
	engine := engine(t)
	empty := t.TempDir()
	notRunsc := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(notRunsc, []byte("#!/bin/sh\necho 'runsc version release-20990101.0'\n"+
		"[ \"$1\" = --version ] || { echo broken >&2; exit 3; }\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		opts gvisor.Options
		want string
	}{
		"no engine":     {gvisor.Options{Runsc: filepath.Join(empty, "runsc")}, "build the pinned engine"},
		"no python":     {gvisor.Options{Runsc: engine, Rootfs: empty}, "install python3 in the root file system"},
		"broken engine": {gvisor.Options{Runsc: notRunsc}, "exit status 3: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			test.opts.Dir = shortDir(t)
			d, err := gvisor.New(test.opts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Probe = %v, want an error with %q", err, test.want)
			}
			if err := d.Close(); err != nil {
				t.Errorf("Close = %v, want nil", err)
			}
			if left, err := os.ReadDir(test.opts.Dir); err != nil || len(left) > 0 {
				t.Errorf("files left in the state directory: %v, %v, want none", left, err)
			}
		})
	}
}

func TestLongStateDirectory(t *testing.T) {
	dir := filepath.Join(shortDir(t), strings.Repeat("d", 100))
	d, err := gvisor.New(gvisor.Options{Runsc: engine(t), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "test"})
	if err == nil || !strings.Contains(err.Error(), "choose a shorter state directory") {
		t.Errorf("Create = %v; want a hint to choose a shorter state directory", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
}

// explore prints what a program can see and do.
const explore = `
import os, socket, sys
def can(f):
    try: return f() or "yes"
    except OSError as e: return os.strerror(e.errno)
def write(path): open(path, "w").write("x")
def connect(host):
    s = socket.socket(); s.settimeout(2); s.connect((host, 80))
status = dict(l.rstrip("\n").split(":\t") for l in open("/proc/self/status") if ":\t" in l)
print("caps", status["CapEff"], status["CapBnd"], status["CapInh"])
print("env", sorted(os.environ.items()))
print("uid", os.getuid(), os.getgid(), "host", socket.gethostname())
print("usr", can(lambda: write("/usr/bin/x")), "root", can(lambda: write("/x")))
print("etc", can(lambda: write("/etc/passwd")))
print("catalogue", can(lambda: write("/opt/codefleet/x")), open("/opt/codefleet/hello").read())
print("shadow", can(lambda: open("/etc/shadow").read()), "home", can(lambda: os.listdir("/home")))
print("local", can(lambda: os.listdir("/usr/local")))
print("metadata", can(lambda: connect("169.254.169.254")))
print("devices", can(lambda: os.mknod("/tmp/dev", 0o600 | 0o020000, os.makedev(1, 8))))
print("mount", can(lambda: os.chroot("/tmp")))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print("task tmp", can(lambda: write("/tmp/x")), "shm", can(lambda: write("/dev/shm/x")))
print("workspace", can(lambda: write("/workspace/x")))
`

func TestInsideOfABox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test expects a box of a root driver")
	}
	d := newDriver(t)
	catalogue, ws := shortDir(t), workspace(t)
	if err := os.WriteFile(filepath.Join(catalogue, "hello"), []byte("world"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_OF_THE_WORKER", "1")
	box := newBox(t, d, executor.Spec{
		Workspace: ws, Env: []string{"HOME=/tmp", "LC_ALL=C.UTF-8"},
		Mounts: []executor.Mount{{Source: catalogue, Target: "/opt/codefleet", ReadOnly: true}},
	})
	stdout, stderr, exit := python(t, box, explore)
	want := `caps 00000000000800e0 00000000000800e0 0000000000000000
env [('HOME', '/tmp'), ('LC_ALL', 'C.UTF-8')]
uid 0 0 host box
usr Read-only file system root Read-only file system
etc Read-only file system
catalogue Read-only file system world
shadow No such file or directory home No such file or directory
local No such file or directory
metadata Network is unreachable
devices Operation not permitted
mount Operation not permitted
task tmp yes shm yes
workspace yes`
	if diff := cmp.Diff(want, stdout); diff != "" || exit != 0 {
		t.Errorf("output of explore (-want +got):\n%s\nexit code %d, want 0, stderr %s", diff, exit, stderr)
	}
	if data, err := os.ReadFile(filepath.Join(ws, "x")); err != nil || string(data) != "x" {
		t.Errorf("file x in the workspace on the host = %q, %v, want x", data, err)
	}
}

func TestScratchIsBounded(t *testing.T) {
	box := newBox(t, newDriver(t), executor.Spec{})
	const fill = `
import errno
for path in "/tmp/f", "/dev/shm/f":
    try:
        with open(path, "wb", 0) as f:
            for _ in range(100): f.write(bytes(1 << 20))
        print("no limit")
    except OSError as e: print(errno.errorcode[e.errno])
`
	if stdout, stderr, exit := python(t, box, fill); stdout != "ENOSPC\nENOSPC" || exit != 0 {
		t.Errorf("program that fills the scratch directories = %q, %q, %d, want ENOSPC twice", stdout, stderr, exit)
	}
}

func TestSecondProcessInABox(t *testing.T) {
	box := newBox(t, newDriver(t), executor.Spec{})
	first, err := box.Exec(t.Context(), []string{"/usr/bin/python3", "-I", "-S", "-c", "import os; " +
		"open('/tmp/f','w').write('shared'); os.write(1, b'x'); os.read(0, 1)"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first.Stdout(), make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, exit := python(t, box, "print(open('/tmp/f').read())"); stdout != "shared" || exit != 0 {
		t.Errorf("second process = %q, %q, %d; want it to see the file of the first", stdout, stderr, exit)
	}
	first.Stdin().Close()
	if code, err := first.Wait(); err != nil || code != 0 {
		t.Errorf("first process = %d, %v, want 0", code, err)
	}
	if stdout, stderr, exit := python(t, box, "import os; print(os.path.exists('/tmp/f'))"); stdout != "False" ||
		exit != 0 {
		t.Errorf("process in the rebooted box = %q, %q, %d; want no file", stdout, stderr, exit)
	}
}

func TestExitCodes(t *testing.T) {
	box := newBox(t, newDriver(t), executor.Spec{})
	for code, want := range map[string]int{
		"raise SystemExit(3)": 3,
		"import os, signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)": 139,
	} {
		if _, stderr, got := python(t, box, code); got != want {
			t.Errorf("exit code of %q = %d, want %d (%s)", code, got, want, stderr)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	d := newDriver(t)
	info, err := d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Limits != "cgroup" {
		t.Skip("no usable cgroups on this host")
	}
	box := newBox(t, d, executor.Spec{})
	if err := box.(executor.Limiter).Limit(t.Context(), executor.Limits{MemoryMB: 64}); err != nil {
		t.Fatal(err)
	}
	// The box's limit is 320 MB: 64 MB and the overhead of 256 MB.
	_, stderr, exit := python(t, box, "x = bytearray(600 << 20); print('allocated')")
	if exit != 137 {
		t.Errorf("exit code = %d, want 137 (%s)", exit, stderr)
	}
	if !box.(executor.OOMReporter).OutOfMemory() {
		t.Error("OutOfMemory after the box was killed for its memory = false, want true")
	}
}

func TestCPULimit(t *testing.T) {
	d := newDriver(t)
	if info, err := d.Probe(t.Context()); err != nil || info.Limits != "cgroup" {
		t.Skipf("no usable cgroups on this host: %v", err)
	}
	box := newBox(t, d, executor.Spec{})
	if err := box.(executor.Limiter).Limit(t.Context(), executor.Limits{CPUs: 0.25}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	python(t, box, "import time; t = time.monotonic()\nwhile time.monotonic() < t + 1: pass")
	elapsed := time.Since(began)
	stats, err := box.(executor.StatsReporter).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if share := stats.CPUMS / float64(elapsed.Milliseconds()); share <= 0 || share > 0.35 {
		t.Errorf("a busy loop used %.2f processors, want about the limit of 0.25, or less on a busy machine", share)
	}
}

func TestDestroyAtAnyTime(t *testing.T) {
	d := newDriver(t)
	for _, delay := range []time.Duration{0, 5, 20, 40, 80, 120} {
		t.Run((delay * time.Millisecond).String(), func(t *testing.T) {
			box, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "test", Workspace: workspace(t)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := box.Exec(t.Context(), []string{"/usr/bin/python3", "-I", "-S", "-c", "while True: pass"})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(delay * time.Millisecond) // during the boot
			for range 2 {
				if err := box.Destroy(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if rest, err := io.ReadAll(s.Stdout()); err != nil || len(rest) > 0 {
				t.Errorf("Stdout after Destroy = %q, %v, want its end", rest, err)
			}
			if code, err := s.Wait(); err != nil || code == 0 {
				t.Errorf("Wait after Destroy = %d, %v; want an exit code other than 0", code, err)
			}
			if _, err := box.Exec(t.Context(), []string{"/bin/true"}); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Exec after Destroy = %v, want ErrClosed", err)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	d := newDriver(t)
	newBox(t, d, executor.Spec{Name: "w0"})
	if _, err := d.Create(t.Context(), executor.Spec{Name: "w0", Owner: "test"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create with a name in use = %v, want ErrExist", err)
	}
	if _, err := d.Create(t.Context(), executor.Spec{Name: "../w1", Owner: "test"}); err == nil {
		t.Error("Create with a path as a name = nil, want an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Create(ctx, executor.Spec{Name: "w2", Owner: "test"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Create after the end of its context = %v; want the context's error", err)
	}
}

func TestTwoOwnersOfOneName(t *testing.T) {
	dir := shortDir(t)
	openDriver := func() *gvisor.Driver {
		d, err := gvisor.New(gvisor.Options{Runsc: engine(t), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	first, second := openDriver(), openDriver()
	box := newBox(t, first, executor.Spec{Owner: "same"})
	s, err := box.Exec(t.Context(), []string{"/usr/bin/python3", "-I", "-S", "-c", "import os; os.write(1, b'x'); " +
		"os.read(0, 1)"})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Sweep(t.Context(), "same"); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("Sweep of a locked owner = %v, want ErrLocked", err)
	}
	if err := second.Sweep(t.Context(), "other"); err != nil {
		t.Errorf("Sweep of another owner = %v, want nil", err)
	}
	if err := first.Sweep(t.Context(), "same"); err != nil {
		t.Errorf("Sweep by the owner of running boxes = %v, want nil", err)
	}
	if _, err := io.ReadFull(s.Stdout(), make([]byte, 1)); err != nil {
		t.Errorf("read from the box after the sweeps = %v, want nil", err)
	}
	s.Stdin().Close()
	if code, err := s.Wait(); err != nil || code != 0 {
		t.Errorf("Wait after the sweeps = %d, %v, want 0", code, err)
	}
}
