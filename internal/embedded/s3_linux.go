package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// flusher writes everything of one file system to its disk.
type flusher struct{ dir *os.File }

func openFlusher(dir string) (*flusher, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &flusher{f}, nil
}

func (f *flusher) Sync() error {
	if err := unix.Syncfs(int(f.dir.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", f.dir.Name(), err)
	}
	return nil
}

func (f *flusher) Close() error { return f.dir.Close() }
