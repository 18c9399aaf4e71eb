package assembly

import "golang.org/x/sys/unix"

// memoryMB is the memory of this host.
func memoryMB() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0 // no limit
	}
	return int(info.Totalram * uint64(info.Unit) >> 20)
}
