package sandbox

import "golang.org/x/sys/unix"

// memoryMB returns this host's memory in MiB, or 0 if it is unknown.
func memoryMB() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int(info.Totalram * uint64(info.Unit) >> 20)
}
