package gvisor_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/executor"
)

// TestProcessesForLaterPrograms checks that while programs follow each other, the runner keeps processes for later
// programs. A program that runs meanwhile cannot signal them, look into them or change them, and they end when no
// program comes for a while.
func TestProcessesForLaterPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root, programs run as the runner's user, so it keeps no such processes")
	}
	s, err := executor.NewSingle(t.Context(), newDriver(t), executor.Spec{
		Name: "w0", Owner: "test", Workspace: workspace(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	const attack = `
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def opens(name, mode):
    return lambda pid: open("/proc/%d/%s" % (pid, name), mode)
def ptrace(pid):
    if libc.ptrace(16, pid, None, None) != 0: raise OSError(ctypes.get_errno(), "attach")
def pidfd(pid):
    if libc.syscall(438, os.pidfd_open(pid), 3, 0) < 0: raise OSError(ctypes.get_errno(), "pidfd_getfd")
ways = {
    "kill": lambda pid: os.kill(pid, 9), "stop": lambda pid: os.kill(pid, 19), "ptrace": ptrace, "pidfd_getfd": pidfd,
    "mem": opens("mem", "r+b"), "maps": opens("maps", "r"), "environ": opens("environ", "rb"),
    "descriptors": lambda pid: os.listdir("/proc/%d/fd" % pid),
    "channel": opens("fd/3", "r+b"), "output": opens("fd/1", "wb"),
    "directory": lambda pid: os.readlink("/proc/%d/cwd" % pid),
    "group": lambda pid: os.setpgid(pid, pid), "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
}
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (os.getpid(), os.getppid())]
done = []
for pid in others:
    for name, way in ways.items():
        try:
            way(pid)
            done.append(name)
        except OSError:
            pass
result = {"others": len(others), "users": sorted({os.stat("/proc/%d" % pid).st_uid for pid in others}), "done": done}
`
	type report struct {
		Others int
		Users  []int
		Done   []string
	}
	play := func() (r report) {
		t.Helper()
		v, err := s.Run(t.Context(), executor.Program{TaskID: "t", Code: attack}, executor.Hooks{})
		if err != nil || v.Status != executor.Succeeded || v.Dirty {
			t.Fatalf("Run = %+v, %v; want success", v, err)
		}
		if err := json.Unmarshal(v.Result, &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Done) > 0 {
			t.Fatalf("a program reached processes for later programs: %v", r.Done)
		}
		return r
	}
	await := func(interval time.Duration, want func(report) bool) report {
		t.Helper()
		var r report
		for range 50 {
			if r = play(); want(r) {
				return r
			}
			<-time.After(interval)
		}
		t.Fatalf("processes in the box = %+v, even after 50 programs", r)
		return r
	}
	// The runner learns the interval from the programs, and forks between two of them.
	r := await(150*time.Millisecond, func(r report) bool { return r.Others > 0 })
	if len(r.Users) != 1 || r.Users[0] != 0 {
		t.Errorf("processes for later programs run as users %v, want root only", r.Users)
	}
	await(3*time.Second, func(r report) bool { return r.Others == 0 })
}
