package microsandbox

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// supportsUserAttributes reports whether files in a directory can have extended user attributes, which msb needs
// for its sandboxes. On a tmpfs that requires Linux 6.6 or newer.
func supportsUserAttributes(dir string) bool {
	file, err := os.CreateTemp(dir, "codefleet-")
	if err != nil {
		return false
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return unix.Fsetxattr(int(file.Fd()), "user.codefleet", []byte("1"), 0) == nil
}

// removeAttribute removes an extended attribute from a directory and all files and directories below it. No process may
// change them meanwhile. It has one directory open at a time and opens each relative to the one before, so that no
// depth is too large.
func removeAttribute(dir, name string) error {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	below, err := removeAttributeIn(f, name)
	levels := [][]string{below} // for f and each directory above it, the directories still to visit
	for err == nil {
		next, last := "..", len(levels)-1
		if count := len(levels[last]); count > 0 {
			next, levels[last] = levels[last][count-1], levels[last][:count-1]
		} else if levels = levels[:last]; last == 0 {
			break
		}
		var inner int
		inner, err = unix.Openat(int(f.Fd()), next, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		f.Close()
		f = os.NewFile(uintptr(inner), next)
		if next != ".." {
			below, err = removeAttributeIn(f, name)
			levels = append(levels, below)
		}
	}
	f.Close()
	if err != nil {
		return fmt.Errorf("remove attribute %s: %w", name, err)
	}
	return nil
}

// removeAttributeIn removes an attribute from an open directory and the files in it. It returns the names of the
// directories in it.
func removeAttributeIn(dir *os.File, name string) (below []string, err error) {
	if err := unix.Fremovexattr(int(dir.Fd()), name); !isGone(err) {
		return nil, err
	}
	for {
		entries, readErr := dir.ReadDir(1024) // a program can make more names than this process has memory for
		for _, e := range entries {
			switch {
			case e.IsDir():
				below = append(below, e.Name())
			case e.Type().IsRegular():
				path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), e.Name())
				if failed := unix.Lremovexattr(path, name); !isGone(failed) && err == nil {
					err = failed
				}
			}
		}
		if errors.Is(readErr, io.EOF) {
			return below, err
		}
		if readErr != nil {
			return below, errors.Join(err, readErr)
		}
	}
}

// isGone reports whether a file no longer has an attribute whose removal returned err.
func isGone(err error) bool {
	return err == nil || errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP)
}
