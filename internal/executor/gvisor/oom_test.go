package gvisor_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
)

// TestAnyProcessKilledForMemory exhausts the memory of boxes in which the kernel prefers to kill a certain process.
// Whichever process it kills, the program's failure is memory_limit, and the box is replaced.
func TestAnyProcessKilledForMemory(t *testing.T) {
	d := newDriver(t)
	if info, err := d.Probe(t.Context()); err != nil || info.Limits != "cgroup" {
		t.Skipf("no usable cgroups on this host: %v", err)
	}
	for _, victim := range []string{"program", "runner", "sandbox", "gofer", "command"} {
		t.Run(victim, func(t *testing.T) {
			spec := executor.Spec{
				Name: "oom-" + victim, Owner: "oom", Workspace: workspace(t), MemoryMB: 100,
			}
			single, err := executor.NewSingle(t.Context(), d, spec)
			if err != nil {
				t.Fatal(err)
			}
			v, err := single.Run(t.Context(), executor.Program{
				TaskID: "t", Limits: executor.Limits{MemoryMB: 4096},
				Code: "import os, time\nprint('ready', flush=True)\n" +
					"while not os.path.exists('go'): time.sleep(0.01)\n" +
					"x = []\nwhile True: x.append(bytes(b'x' * (1 << 20)))",
			}, executor.Hooks{Output: func(string, []byte) {
				preferVictim(t, spec.Name, victim)
				if err := os.WriteFile(filepath.Join(spec.Workspace, "go"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}})
			if err != nil || v.Status != executor.Failed || v.Error.Code != errcode.MemoryLimit || !v.Dirty {
				t.Errorf("Run() = %+v, %+v, %v; want a dirty verdict memory_limit", v, v.Error, err)
			}
			if err := single.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
	}
}

// preferVictim makes the kernel prefer one kind of a box's processes when it must kill one. Call it before the program
// allocates memory.
func preferVictim(t *testing.T, box, victim string) {
	t.Helper()
	found := map[string][]int{}
	for _, pid := range processesOfBox(t, box) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		name, _, _ := bytes.Cut(args, []byte{0})
		switch {
		case string(name) == "runsc-sandbox", string(name) == "runsc-gofer":
			found[string(name[6:])] = append(found[string(name[6:])], pid)
		case len(name) == 0: // a stub, which executes the instructions of a process in the box
			found["stubs"] = append(found["stubs"], pid)
		default:
			found["command"] = append(found["command"], pid)
		}
	}
	slices.Sort(found["stubs"])
	if n := len(found["stubs"]); n >= 4 { // two for the runner, followed by two for the program that it has forked
		found["program"], found["runner"] = found["stubs"][n-2:], found["stubs"][n-4:n-2]
	}
	if len(found[victim]) == 0 {
		t.Errorf("processes of the box = %v, want a %s", found, victim)
	}
	for _, pid := range found[victim] {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0); err != nil {
			t.Errorf("set oom_score_adj of process %d = %v, want nil", pid, err)
		}
	}
}

// processesOfBox returns the processes in the control group of a box of the owner oom.
func processesOfBox(t *testing.T, box string) (pids []int) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/memory/codefleet/oom-*/", "/sys/fs/cgroup/codefleet/oom-*/"} {
		groups, err := filepath.Glob(pattern + box + "/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			text, err := os.ReadFile(group)
			if err != nil {
				t.Error(err)
			}
			for field := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}
