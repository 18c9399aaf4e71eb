//go:build !linux

package sandbox

// memoryMB returns 0, unknown: sandboxes run on Linux.
func memoryMB() int { return 0 }
