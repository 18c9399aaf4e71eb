package hostdir

import (
	"bytes"
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

// Mounts lists the mount points at dir or below it, outermost first.
func Mounts(dir string) ([]string, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return slices.DeleteFunc(parseMounts(string(info)), func(point string) bool { return !Below(point, dir) }), nil
}

// Disks lists the loop devices of this host.
func Disks() ([]Disk, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	mounts := parseDisks(string(info))
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var disks []Disk
	for _, file := range files {
		image, err := os.ReadFile(file)
		if err != nil {
			continue // detached since Glob
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		image = bytes.TrimSuffix(bytes.TrimSuffix(image, []byte("\n")), []byte(" (deleted)"))
		disks = append(disks, Disk{Device: device, Image: string(image), Mount: mounts[device]})
	}
	return disks, nil
}

// resolve makes a path comparable with the kernel's paths: absolute and without symbolic links. Symbolic links
// stay in a path that does not exist, which has no mounts.
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

// UnmountBelow detaches every mount at dir or below it, innermost first. Open files keep working; the disk
// is freed when the last one is closed.
func UnmountBelow(dir string) error {
	points, err := Mounts(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// Remove unmounts everything at dir or below it and deletes dir. It deletes nothing while a mount is left, so
// it cannot delete files of another file system.
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

// NewDisk makes an empty ext4 file system of mib MiB in the sparse file image, owned by uid and gid, and mounts
// it at dir (nosuid, nodev). Unmounting dir frees the loop device. It needs root and mkfs.ext4. After an error
// nothing is mounted.
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
	defer device.Close() // a mount keeps the device attached; otherwise this detaches it
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	if err := unix.Mount(device.Name(), dir, "ext4", flags, diskOptions); err != nil {
		return fmt.Errorf("mount disk %s: %w", image, err)
	}
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("empty the new disk: %w", err), UnmountBelow(dir))
	}
	return nil
}

// Free returns how many bytes may still be written to the disk that holds dir.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("read free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Flush writes the cached data of the file system at dir to its disk. It returns an error if any write has
// failed since the last Flush, including writes in the background.
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

// bytesPerFile is the size of a disk divided by the number of its inodes: one block, so that a disk runs out
// of blocks before it runs out of inodes.
const bytesPerFile = 4 << 10

// blocksPerGroup makes the file system's block groups small. Without a journal, ext4 does not use an inode again for
// minutes after its file was deleted. To create a file, it searches a whole group past such inodes. With groups of the
// usual size, each checkout of 2,000 files in the place of others took longer than the one before, up to seconds.
const blocksPerGroup = 2048

// diskOptions are the mount options of a disk. The disk need not survive a crash of the host, so barrier=0 keeps a
// flush of it from flushing the host's disk. noinit_itable keeps the kernel from writing to a disk that is not used.
const diskOptions = "barrier=0,noinit_itable"

// format makes a file system without a journal or reserved blocks, because the disk is deleted with its box.
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
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-m", "0", "-i", strconv.Itoa(bytesPerFile),
		"-g", strconv.Itoa(blocksPerGroup), "-O", "^has_journal",
		"-E", fmt.Sprintf("lazy_itable_init=1,nodiscard,root_owner=%d:%d", uid, gid), image)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format disk %s: %w: %s", image, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// FindMkfs returns the path of mkfs.ext4, which need not be on PATH.
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

// attach connects image to a free loop device, which is detached when its last user closes it. If another process
// takes the device first, attach tries the next one.
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
	return nil, errors.New("find a free loop device: too many attempts")
}
