package gvisor_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/codefleet/codefleet/internal/executor/gvisor"
)

// TestBoxesInContainers checks that processes of boxes in containers are neither found nor killed, although their
// arguments name a directory of this host, and that those of a killed worker of this host are found.
func TestBoxesInContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	const pids, mounts = syscall.CLONE_NEWPID, syscall.CLONE_NEWNS
	for name, c := range map[string]struct {
		outer, inner uintptr // namespaces; a process with inner is started by one with outer
		command      string
		owner        bool // whether the owner is found
		processes    int
	}{
		"runsc":                          {0, 0, "run", true, 1},
		"sandbox":                        {pids, 0, "boot", true, 1},
		"file server":                    {pids | mounts, 0, "gofer", true, 1},
		"runsc in a container":           {pids | mounts, 0, "run", false, 0},
		"sandbox in a container":         {pids | mounts, pids, "boot", false, 0},
		"file server in a container":     {pids, pids | mounts, "gofer", false, 0},
		"runsc with other mounts, alive": {mounts, 0, "run", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			owner := filepath.Join(t.TempDir(), "g", "f")
			root, shared := filepath.Join(owner, "b", "w0"), filepath.Join(owner, "shared")
			startBoxProcess(t, c.outer, c.inner, "--root="+root, "--shared-root="+shared, c.command, "id")
			owners, err := gvisor.RunningOwners()
			if err != nil || slices.Contains(owners, owner) != c.owner {
				t.Errorf("RunningOwners() = %v, %v; want %s among them: %v", owners, err, owner, c.owner)
			}
			if n, err := gvisor.Processes(owner); err != nil || n != c.processes {
				t.Errorf("Processes() = %d, %v; want %d", n, err, c.processes)
			}
		})
	}
}

// startBoxProcess starts a process with the arguments of a process of a box. It ends with the test.
func startBoxProcess(t *testing.T, outer, inner uintptr, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", "echo ready; read line"}, args...)...)
	if inner != 0 {
		cmd = exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), startInside+"="+strings.Join(args, "\n"))
		if inner&syscall.CLONE_NEWNS != 0 {
			cmd.Env = append(cmd.Env, startInside+"_MOUNTS=1")
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: outer}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("started process printed %q, %v; want ready", line, err)
	}
}

// startInside names the variable with which this binary starts a process with the variable's lines as arguments, in a
// PID namespace of its own.
const startInside = "TEST_START_IN_NAMESPACE"

func startInNamespace(args []string) error {
	cmd := exec.Command("/bin/sh", append([]string{"-c", "echo ready; read line"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Getenv(startInside+"_MOUNTS") != "" {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	}
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd.Run()
}
