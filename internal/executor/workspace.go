package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// workspaceMode is the mode of a workspace directory when a program starts.
const workspaceMode = 0o700

// resetWorkspace resets the mode and times of a box's workspace directory after a program, and returns the new time.
// The program may have removed its own access, which the next program needs, or set the times, which the next program
// could read. In the box, the files get the modes that they have on the host. last is the time that an earlier reset
// returned. If the directory has not changed since then, it is not written to, because a write would make the disk look
// changed, see AcquiredBox.WatchDisk.
func resetWorkspace(box Box, dir string, last time.Time) (time.Time, error) {
	var err error
	if !isReset(dir, last) {
		last = time.Now()
		err = errors.Join(os.Chmod(dir, workspaceMode), os.Chtimes(dir, last, last))
	}
	if r, ok := box.(ModeResetter); ok && err == nil {
		err = r.ResetModes()
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reset workspace: %w", err)
	}
	return last, nil
}

// isReset reports whether a workspace directory still has the mode and the times of the reset that returned this time.
func isReset(dir string, reset time.Time) bool {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return false
	}
	return st.Mode&^unix.S_IFMT == workspaceMode && st.Mtim.Nano() == reset.UnixNano() &&
		st.Atim.Nano() == reset.UnixNano()
}

// diskMode says whether each box gets a disk. The first attempt decides.
type diskMode int

const (
	disksUntried diskMode = iota
	disksOn
	disksOff
)

// workspacesDir returns the directory of the boxes' workspaces.
func (p *Pool) workspacesDir() string { return filepath.Join(p.opts.Dir, p.opts.Owner, "ws") }

// snapshotsDir returns the directory of the boxes' snapshots.
func (o PoolOptions) snapshotsDir() string { return filepath.Join(o.Dir, o.Owner, "saved") }

// resetFiles removes what a dead process of the same owner left behind, and makes the pool's directories. It locks
// them, so that other processes do not remove them as abandoned.
func (p *Pool) resetFiles() error {
	dir := filepath.Dir(p.workspacesDir())
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	var err error
	if p.lock, err = hostdir.Acquire(dir); err != nil {
		return err
	}
	for dir, mode := range map[string]os.FileMode{p.workspacesDir(): 0o711, p.opts.snapshotsDir(): 0o700} {
		if err := hostdir.Remove(dir); err != nil {
			return fmt.Errorf("remove files of earlier boxes: %w", err)
		}
		if err := os.Mkdir(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// removeFiles removes the pool's directories, unless boxes are left.
func (p *Pool) removeFiles(ctx context.Context) error {
	p.mu.Lock()
	left := len(p.sched.boxes)
	p.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("stop pool: boxes that could not be destroyed: %d", left)
	}
	defer p.lock.Release()
	if err := hostdir.Remove(filepath.Dir(p.workspacesDir())); err != nil {
		return fmt.Errorf("stop pool: %w", err)
	}
	p.log.DebugContext(ctx, "pool stopped")
	return nil
}

// makeWorkspace makes the box's empty workspace, owned by the user that programs run as. It is a disk if
// possible, else a directory.
func (p *Pool) makeWorkspace(ctx context.Context, b *pooledBox) error {
	parent := filepath.Join(p.workspacesDir(), b.id)
	b.dir = filepath.Join(parent, "workspace")
	if err := os.Mkdir(parent, 0o711); err != nil {
		return fmt.Errorf("make workspace: %w", err)
	}
	if mode := p.diskMode(); mode != disksOff {
		err := p.makeDisk(ctx, b, filepath.Join(parent, "disk"))
		if err == nil || mode == disksOn || ctx.Err() != nil {
			return err
		}
		p.log.WarnContext(ctx, "creation of a box's disk failed; workspaces are directories of limited size",
			"error", err)
		p.setDiskMode(disksOff)
		if err := hostdir.Remove(parent); err != nil {
			return err
		}
		if err := os.Mkdir(parent, 0o711); err != nil {
			return fmt.Errorf("make workspace: %w", err)
		}
	}
	if err := os.Mkdir(b.dir, workspaceMode); err != nil {
		return fmt.Errorf("make workspace: %w", err)
	}
	if uid := DefaultGuest().UID; os.Geteuid() == 0 {
		return os.Chown(b.dir, uid, uid)
	}
	return nil
}

// makeDisk makes the box's workspace, as the mount point of a new disk. image is the path of the disk's file.
func (p *Pool) makeDisk(ctx context.Context, b *pooledBox, image string) error {
	uid := DefaultGuest().UID
	if err := hostdir.NewDisk(ctx, image, b.dir, p.opts.DiskMB, uid, uid); err != nil {
		return err
	}
	b.hasDisk = true
	p.setDiskMode(disksOn)
	return os.Chmod(b.dir, workspaceMode)
}

func (p *Pool) removeWorkspace(b *pooledBox) error {
	return hostdir.Remove(filepath.Join(p.workspacesDir(), b.id))
}

func (p *Pool) diskMode() diskMode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disks
}

// setDiskMode records the outcome of the first attempt.
func (p *Pool) setDiskMode(mode diskMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks == disksUntried {
		p.disks = mode
	}
}
