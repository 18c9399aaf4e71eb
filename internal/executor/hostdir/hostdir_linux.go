package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounts lists what is mounted at dir or below it, outermost first.
func Mounts(dir string) ([]string, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return slices.DeleteFunc(parseMounts(string(info)), func(point string) bool { return !below(point, dir) }), nil
}

// resolve makes a path comparable with the kernel's: absolute, without links.
// What does not exist has no mounts, so its name is good enough.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return target, nil
	}
	return dir, nil
}

// UnmountBelow detaches every mount at dir or below it, the innermost first.
// Files that are still open keep working; the disk behind goes with the last.
func UnmountBelow(dir string) error {
	points, err := Mounts(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// Remove unmounts what is mounted below dir and deletes dir. It deletes nothing
// while a mount is left, so it cannot empty somebody else's file system.
func Remove(dir string) error {
	if err := UnmountBelow(dir); err != nil {
		return err
	}
	if points, err := Mounts(dir); err != nil || len(points) > 0 {
		return errors.Join(err, fmt.Errorf("remove %s: still mounted: %v", dir, points))
	}
	if err := removeAll(dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}

// NewDisk makes an empty ext4 file system of mib MiB in the sparse file image,
// owned by uid and gid, and mounts it at dir (nosuid, nodev). Unmounting dir
// frees the loop device by itself. It needs root and mkfs.ext4; on an error
// nothing stays mounted.
func NewDisk(ctx context.Context, image, dir string, mib int64, uid, gid int) error {
	if err := format(ctx, image, mib, uid, gid); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	device, err := attach(image)
	if err != nil {
		return fmt.Errorf("attach disk %s: %w", image, err)
	}
	defer device.Close() // the mount keeps the device; without one it detaches here
	if err := unix.Mount(device.Name(), dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount disk %s: %w", image, err)
	}
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("empty the new disk: %w", err), UnmountBelow(dir))
	}
	return nil
}

// Free is how many bytes may still be written on the disk that holds dir.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Flush brings the file system that is mounted at dir onto its disk. The error tells of anything that
// could not be written since somebody last looked, in the background too.
func Flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	return nil
}

// bytesPerFile is how much of a disk there is for each file that it can hold: a block, so that a disk is
// full of bytes before it is full of files.
const bytesPerFile = 4 << 10

// format has no journal and no reserved blocks: the disk dies with its box.
func format(ctx context.Context, image string, mib int64, uid, gid int) error {
	file, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	err = errors.Join(file.Truncate(mib<<20), file.Close())
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	mkfs, err := FindMkfs()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-i", strconv.Itoa(bytesPerFile), "-O", "^has_journal",
		"-E", fmt.Sprintf("lazy_itable_init=1,nodiscard,root_owner=%d:%d", uid, gid), image)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format disk %s: %w: %s", image, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// FindMkfs finds mkfs.ext4, also where an ordinary PATH does not look.
func FindMkfs() (string, error) {
	if path, err := exec.LookPath("mkfs.ext4"); err == nil {
		return path, nil
	}
	for _, path := range []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find mkfs.ext4: %w (apt-get install e2fsprogs)", exec.ErrNotFound)
}

// attach ties image to a free loop device that detaches with its last user.
// Another process may take the free device first: then the next one is tried.
func attach(image string) (*os.File, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	copy(config.Info.File_name[:], image)
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure loop device: %w", err)
		}
	}
	return nil, errors.New("every free loop device was taken by others")
}
