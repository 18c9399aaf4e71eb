package embedded

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this process ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// identityOf returns the identity of a directory.
func identityOf(f *os.File) identity {
	var st unix.Statx_t
	const want = unix.STATX_INO | unix.STATX_BTIME
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, want, &st)
	if err != nil || st.Mask&want != want {
		return identity{}
	}
	return identity{st.Ino, st.Btime.Sec*1e9 + int64(st.Btime.Nsec)}
}

// syncAll flushes the file system of f.
func syncAll(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
