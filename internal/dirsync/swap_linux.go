package dirsync

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ctime(s *syscall.Stat_t) int64 { return s.Ctim.Nano() }

// exchange atomically swaps the names of two files in a directory. ok is false if the file system cannot.
func exchange(dir *os.File, a, b string) (ok bool, err error) {
	err = unix.Renameat2(int(dir.Fd()), a, int(dir.Fd()), b, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENOTSUP {
		return false, nil
	}
	return true, err
}
