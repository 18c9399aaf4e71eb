//go:build unix

package executor

import (
	"io/fs"
	"syscall"
)

// diskUse is what a file takes on the disk: a sparse file less than its size.
func diskUse(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
