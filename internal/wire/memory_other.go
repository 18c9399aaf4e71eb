//go:build !linux

package wire

// memoryMB is 0, no limit: sandboxes run on Linux.
func memoryMB() int { return 0 }
