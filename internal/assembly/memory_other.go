//go:build !linux

package assembly

// memoryMB is 0, no limit: sandboxes run on Linux.
func memoryMB() int { return 0 }
