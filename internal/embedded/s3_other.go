//go:build !linux

package embedded

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// dieWithParent does nothing, because only Linux has a parent-death signal. The child ends when standard input does.
func dieWithParent(*exec.Cmd) {}

// syncAll flushes all file systems.
func syncAll(*os.File) error { return unix.Sync() }
