//go:build unix

package hostdir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func flock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
