//go:build !linux

package embedded

import (
	"os/exec"

	"golang.org/x/sys/unix"
)

// dieWithParent: the lifeline on standard input does it where the kernel does not.
func dieWithParent(*exec.Cmd) {}

// flusher writes everything of all file systems to their disks.
type flusher struct{}

func openFlusher(string) (*flusher, error) { return &flusher{}, nil }

func (*flusher) Sync() error  { return unix.Sync() }
func (*flusher) Close() error { return nil }
