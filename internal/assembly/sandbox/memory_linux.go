package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryMB returns this host's memory in MiB, or 0 if it is unknown. In a container, it is the container's limit.
func memoryMB() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	mb := int(info.Totalram * uint64(info.Unit) >> 20)
	if limit := limitMB("/sys/fs/cgroup"); limit > 0 {
		return min(mb, limit)
	}
	return mb
}

// limitMB returns the memory limit of the control group that is mounted at a directory, in MiB, or 0 if it has none. In
// a container, this is the container's own group. It also limits gVisor's boxes, whose groups are below it.
func limitMB(mount string) int {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} { // versions 2 and 1
		text, err := os.ReadFile(filepath.Join(mount, name))
		if err != nil {
			continue
		}
		bytes, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" is not a number, and gives 0
		return int(bytes >> 20)
	}
	return 0
}
