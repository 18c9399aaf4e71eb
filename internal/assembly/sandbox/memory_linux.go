package sandbox

import "golang.org/x/sys/unix"

// memoryMB returns the memory of this host; 0: unknown.
func memoryMB() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int(info.Totalram * uint64(info.Unit) >> 20)
}
