//go:build !linux

package sandbox

// memoryMB returns 0 for unknown, since sandboxes run only on Linux.
func memoryMB() int { return 0 }
