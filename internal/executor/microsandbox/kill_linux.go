package microsandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killMachine kills the process of a sandbox without msb's help: for when that does not answer. Its
// arguments name the sandbox, and its environment the driver's directory.
func (d *Driver) killMachine(name string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isMachine(filepath.Join("/proc", e.Name()), d.home, name) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// isMachine reads the arguments and the environment of a process.
func isMachine(proc, home, name string) bool {
	args, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || !strings.HasPrefix(afterFirst(args), "machine\x00--name\x00"+name+"\x00") {
		return false
	}
	env, err := os.ReadFile(filepath.Join(proc, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00MSB_HOME="+home+"\x00"))
}

// afterFirst is a list of words that end in null bytes, without the first.
func afterFirst(words []byte) string {
	_, rest, _ := strings.Cut(string(words), "\x00")
	return rest
}
