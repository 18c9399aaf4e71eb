package tree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
)

// dirHandle keeps the last used directory open: entries are sorted by path, so the next one is often in it too.
type dirHandle struct {
	tree *Dir
	path string
	root *os.Root
}

func (d *dirHandle) close() {
	if d.root != nil && d.root != d.tree.root {
		d.root.Close()
	}
	d.root = nil
}

// at opens path's directory, and returns it with path's name in it.
func (d *dirHandle) at(path string) (*os.Root, string, error) {
	dir := format.ParentDir(path)
	name := strings.TrimPrefix(path[len(dir):], "/")
	if d.root != nil && d.path == dir {
		return d.root, name, nil
	}
	d.close()
	root := d.tree.root
	if dir != "" {
		var err error
		if root, err = d.tree.root.OpenRoot(dir); err != nil {
			return nil, "", err
		}
	}
	d.root, d.path = root, dir
	return root, name, nil
}

// openFile opens the file at path.
func (d *dirHandle) openFile(path string, flag int, mode uint32) (*os.File, error) {
	dir, name, err := d.at(path)
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(name, flag|syscall.O_NOFOLLOW, os.FileMode(mode))
	if err != nil {
		return nil, fmt.Errorf("write %q: %w", path, err)
	}
	return f, nil
}

// writeFile creates a file with its whole content. It never opens an existing file.
func (d *dirHandle) writeFile(e *format.Entry, data []byte) (stat, error) {
	f, err := d.openFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.Mode)
	if err != nil {
		return stat{}, err
	}
	defer f.Close()
	if err := writeBlocks(f, data, 0); err != nil {
		return stat{}, fmt.Errorf("write %q: %w", e.Path, err)
	}
	return d.finish(f, e)
}

// finish sets a file's owner, times and permissions.
func (d *dirHandle) finish(f *os.File, e *format.Entry) (stat, error) {
	if o := d.tree.opts.Owner; o != nil {
		if err := f.Chown(o.UID, o.GID); err != nil {
			return stat{}, fmt.Errorf("set owner of %q: %w", e.Path, err)
		}
	}
	dir, name, err := d.at(e.Path)
	if err != nil {
		return stat{}, err
	}
	mtime := time.Unix(0, e.MTime)
	if err := dir.Chtimes(name, mtime, mtime); err != nil {
		return stat{}, fmt.Errorf("set times of %q: %w", e.Path, err)
	}
	st, err := statFile(f)
	if err == nil && st.Mode != e.Mode { // because of the process's umask, or of reserve
		if err = f.Chmod(os.FileMode(e.Mode)); err == nil {
			st, err = statFile(f)
		}
	}
	return st, err
}

// reserve creates a file that is written in parts, as a hole of its full size.
func (d *dirHandle) reserve(e *format.Entry) error {
	f, err := d.openFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(e.Size), f.Close())
}

// writePart writes one chunk of a file.
func (d *dirHandle) writePart(e *format.Entry, data []byte, offset int64) error {
	f, err := d.openFile(e.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = writeBlocks(f, data, offset)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q: %w", e.Path, err)
	}
	return nil
}

// zeros is one block of a file system.
var zeros [4096]byte

// writeBlocks writes data to a part of a file that is a hole, or at its end. Blocks of zeros stay holes, so the file
// takes no more disk space than the file that the program wrote, which may have had holes.
func writeBlocks(f *os.File, data []byte, offset int64) error {
	end := offset + int64(len(data))
	for len(data) > 0 {
		n, hole := nextRun(data)
		if !hole {
			if _, err := f.WriteAt(data[:n], offset); err != nil {
				return err
			}
		} else if n == len(data) { // the file may end here
			if info, err := f.Stat(); err != nil || info.Size() >= end {
				return err
			}
			return f.Truncate(end)
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

// nextRun returns how many bytes at the start of data are blocks of zeros (hole is true) or other blocks (hole is
// false).
func nextRun(data []byte) (n int, hole bool) {
	for n < len(data) {
		block := data[n:min(n+len(zeros), len(data))]
		if zero := len(block) == len(zeros) && bytes.Equal(block, zeros[:]); n == 0 {
			hole = zero
		} else if zero != hole {
			break
		}
		n += len(block)
	}
	return n, hole
}

// finishParts completes a file that was written in parts.
func (d *dirHandle) finishParts(e *format.Entry) (stat, error) {
	f, err := d.openFile(e.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait if it has become a pipe
	if err != nil {
		return stat{}, err
	}
	defer f.Close()
	return d.finish(f, e)
}

func (d *dirHandle) symlink(e *format.Entry) (stat, error) {
	dir, name, err := d.at(e.Path)
	if err != nil {
		return stat{}, err
	}
	if err := dir.Symlink(e.Target, name); err != nil {
		return stat{}, fmt.Errorf("make symbolic link %q: %w", e.Path, err)
	}
	if err := d.tree.chown(dir, name); err != nil {
		return stat{}, err
	}
	return d.stat(e.Path)
}

// stat returns a path's stat. It does not follow symbolic links.
func (d *dirHandle) stat(path string) (stat, error) {
	dir, name, err := d.at(path)
	if err != nil {
		return stat{}, err
	}
	f, err := dir.Open(".")
	if err != nil {
		return stat{}, err
	}
	defer f.Close()
	return statAt(f, name)
}
