//go:build !linux

package dirsync

import (
	"os"
	"syscall"
)

func ctime(s *syscall.Stat_t) int64 { return s.Ctimespec.Nano() }

// exchange is not supported on this system.
func exchange(*os.File, string, string) (ok bool, err error) { return false, nil }
