//go:build unix

package executor

import (
	"io/fs"
	"syscall"
)

// diskUse returns how many bytes a file uses on the disk, which are fewer than its size if it is sparse.
func diskUse(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}

// inodeOf returns a file's number, which no other file of its file system has at the same time.
func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
