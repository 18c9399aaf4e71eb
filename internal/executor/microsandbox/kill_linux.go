package microsandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// killMachine kills the process of a sandbox without msb, in case msb does not respond. The process has the
// sandbox's name in its arguments and the driver's directory in its environment.
func (d *Driver) killMachine(name string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isMachine(filepath.Join("/proc", e.Name()), d.home, name) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails if it has ended
		}
	}
}

// isMachine reports whether a process, by its directory in /proc, runs the named sandbox.
func isMachine(proc, home, name string) bool {
	text, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	flag := slices.Index(args, "--name") // may follow other flags
	if len(args) < 2 || args[1] != "machine" || flag < 0 || flag+1 == len(args) || args[flag+1] != name {
		return false
	}
	env, err := os.ReadFile(filepath.Join(proc, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00MSB_HOME="+home+"\x00"))
}
