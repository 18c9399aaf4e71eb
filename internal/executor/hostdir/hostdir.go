// Package hostdir manages directories on the worker's host that outlive a crash: their locks (Lock, Held, Sweep), the
// mounts below them (Mounts, UnmountBelow), disks of a fixed size inside them (NewDisk), and all disks of this host
// (Disks). It also creates directories atomically (CreateOnce), archives them (Tar), and resolves links in root file
// systems (Resolve). FindImage finds images by name. The package does not know boxes or drivers.
//
// Mounts and disks need Linux and root. On other systems there are none, and the functions that make or measure a disk
// return errors.ErrUnsupported.
package hostdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codefleet/codefleet/internal/filelock"
	"github.com/codefleet/codefleet/internal/removal"
)

// lockName is the name of the lock file in a locked directory.
const lockName = "lock"

// A Lock is held until Release, or until the process ends for any reason.
type Lock struct{ file *os.File }

// Acquire makes dir with mode 0700 unless it exists, and locks it without waiting. The error is
// filelock.ErrLocked while another process, or another holder in this one, has the lock.
func Acquire(dir string) (*Lock, error) {
	for {
		lock, err := tryLock(dir)
		if err != nil {
			return nil, fmt.Errorf("lock directory %s: %w", dir, err)
		}
		if lock.current() {
			return lock, nil
		}
		lock.Release() // the previous holder has removed the directory
	}
}

func tryLock(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.TryLock(file); err != nil {
		file.Close()
		return nil, err
	}
	return &Lock{file}, nil
}

// current reports whether the locked file is still in its directory.
func (l *Lock) current() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(l.file.Name())
	return err == nil && os.SameFile(ours, named)
}

// Sweep removes the directories in parent whose names begin with prefix, unless they are locked. It locks each
// directory and calls sweep before it removes it.
func Sweep(parent, prefix string, sweep func(name string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		dir := filepath.Join(parent, entry.Name())
		lock, err := Acquire(dir)
		if errors.Is(err, filelock.ErrLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(sweep(entry.Name()), Remove(dir))
			lock.Release()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Release releases the lock. Releasing a nil lock does nothing.
func (l *Lock) Release() {
	if l != nil {
		l.file.Close()
	}
}

// CreateOnce creates dir with the files that fill writes into a temporary directory next to it, whose name begins with
// prefix. If another process creates dir first, its files stay. After an error, nothing is left behind. Others may
// remove dir before CreateOnce returns.
func CreateOnce(dir, prefix string, fill func(temp string) error) error {
	temp, err := os.MkdirTemp(filepath.Dir(dir), prefix)
	if err != nil {
		return err
	}
	defer Remove(temp) //nolint:errcheck // after a success it does not exist
	if err := fill(temp); err != nil {
		return err
	}
	if err = os.Rename(temp, dir); errors.Is(err, fs.ErrExist) {
		return nil // another process was faster, and may have removed it since
	}
	return err
}

// PathHash returns the first eight hexadecimal digits of a path's hash, to make names unique.
func PathHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}

// parseDisks returns the mount points of loop devices in a mountinfo file, by device.
func parseDisks(mountinfo string) map[string]string {
	points := map[string]string{}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if len(fields) > 4 && len(source) > 1 && strings.HasPrefix(source[1], "/dev/loop") {
			points[source[1]] = unescape(fields[4])
		}
	}
	return points
}

// A Disk is a loop device.
type Disk struct {
	Device string // such as /dev/loop0
	Image  string // path of the file with the disk's content, even if the file was deleted
	Mount  string // the mount point; empty if it is not mounted
}

// parseMounts returns the mount points in a mountinfo file, in the file's order: a mount follows the mount that
// contains its mount point.
func parseMounts(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points
}

// unescape undoes the kernel's octal escapes (\040 for a space).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isOctal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}

// removeAll deletes dir and whatever a program has left in it.
func removeAll(dir string) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(removal.All(root, filepath.Base(dir)), root.Close())
}

// Below reports whether path is dir or is inside it. Both must be clean and absolute.
func Below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
}

// Held reports whether a process holds the lock of dir. It also finds a lock whose file was deleted.
func Held(dir string) (bool, error) {
	path := filepath.Join(dir, lockName)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return isOpen(path + " (deleted)")
	}
	if err != nil {
		return false, fmt.Errorf("check the lock of %s: %w", dir, err)
	}
	defer file.Close()
	switch err := filelock.TryLock(file); {
	case errors.Is(err, filelock.ErrLocked):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("check the lock of %s: %w", dir, err)
	}
	return false, nil
}

// isOpen reports whether a process of this user has a file open. A deleted file's path ends in " (deleted)". On systems
// without /proc it returns false.
func isOpen(path string) (bool, error) {
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == path {
			return true, nil
		}
	}
	return false, err
}
