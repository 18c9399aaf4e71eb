package hostdir

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadRevision returns the revision of the disk that is mounted at dir. If the disk does not have as much free space as
// in last, it has changed, and ReadRevision reads no more than that. Otherwise it flushes the disk, and reads how many
// sectors the kernel has written: a change of a file's content, name, mode or times is written to at least one.
func ReadRevision(dir string, last Revision) (Revision, error) {
	f, err := os.Open(dir)
	if err != nil {
		return Revision{}, fmt.Errorf("read the revision of a disk: %w", err)
	}
	defer f.Close()
	r, err := readSpace(f)
	if err != nil || r != (Revision{freeBlocks: last.freeBlocks, freeFiles: last.freeFiles}) {
		return r, err
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return Revision{}, fmt.Errorf("flush %s: %w", dir, err)
	}
	if r, err = readSpace(f); err != nil {
		return Revision{}, err
	}
	r.sectors, err = writtenSectors(f)
	return r, err
}

// readSpace returns a Revision that has only the free space.
func readSpace(f *os.File) (Revision, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return Revision{}, fmt.Errorf("read the free space of %s: %w", f.Name(), err)
	}
	return Revision{freeBlocks: st.Bfree, freeFiles: st.Ffree}, nil
}

// sectorsField is the index of the number of written sectors in a block device's stat file (the kernel's
// Documentation/block/stat.rst).
const sectorsField = 6

// writtenSectors returns how many sectors were written to the device of f's file system, which the kernel counts unless
// iostats is off.
func writtenSectors(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("find the device of %s: %w", f.Name(), err)
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	counts, err := os.ReadFile(device + "/queue/iostats")
	if err != nil {
		return 0, fmt.Errorf("count written sectors: %w", err)
	}
	if strings.TrimSpace(string(counts)) != "1" {
		return 0, errors.New("count written sectors: the kernel's statistics of " + device + " are off")
	}
	data, err := os.ReadFile(device + "/stat")
	if err != nil {
		return 0, fmt.Errorf("count written sectors: %w", err)
	}
	fields := strings.Fields(string(data))
	if len(fields) <= sectorsField {
		return 0, fmt.Errorf("count written sectors: %s/stat has %d fields", device, len(fields))
	}
	n, err := strconv.ParseUint(fields[sectorsField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count written sectors: %w", err)
	}
	return n, nil
}
