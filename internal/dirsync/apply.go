package dirsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// errChanged is returned when a path of the directory has changed since the scan.
var errChanged = errors.New("the path changed since it was scanned")

// apply makes the directory equal to the workspace at the paths of todo. It first removes paths, the deepest first,
// then creates directories and symbolic links, and then writes files in the order in which they arrive.
func (f *Folder) apply(ctx context.Context, generation int64, todo []difference, policy Policy, r *Report) error {
	if len(todo) == 0 {
		return nil
	}
	if err := f.readUmask(); err != nil {
		return err
	}
	f.meter, f.made = meter{report: f.o.Progress}, map[string]bool{}
	for _, d := range slices.Backward(todo) {
		if d.there == nil || d.here != nil && d.here.kind != d.there.Kind && (!d.ours || policy != KeepBoth) {
			if d.there == nil && d.ours && policy == KeepBoth {
				delete(f.base.Paths, d.path) // they removed what we edited: our edit stays
				r.Different = append(r.Different, d.path)
				continue
			}
			if err := f.remove(d, r); err != nil {
				return err
			}
		}
	}
	files := map[string]difference{}
	var wanted []string
	for _, d := range todo {
		if d.there == nil {
			continue
		}
		var err error
		switch d.there.Kind {
		case Dir:
			err = f.writeDir(d, r, generation)
		case Symlink:
			err = f.writeSymlink(d, policy, r, generation)
		default:
			files[d.path] = d
			wanted = append(wanted, d.path)
			f.meter.total += d.there.Bytes
		}
		if err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	err := f.remote.Read(ctx, generation, wanted, func(p string, content io.Reader) error {
		d, ok := files[p]
		if !ok {
			return fmt.Errorf("the workspace sent %q, which was not requested", p)
		}
		delete(files, p)
		return f.writeFile(d, content, policy, r, generation)
	})
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("the workspace did not send %d of the requested files", len(files))
	}
	return err
}

// readUmask finds the umask from the mode of a new directory. The umask system call would briefly change the umask of
// the whole process.
func (f *Folder) readUmask() error {
	if f.umaskRead {
		return nil
	}
	temp := tempName("umask")
	if err := f.root.Mkdir(temp, fs.ModePerm); err != nil {
		return err
	}
	info, err := f.root.Lstat(temp)
	if err == nil {
		f.umask, f.umaskRead = fs.ModePerm&^info.Mode().Perm(), true
	}
	return errors.Join(err, f.root.Remove(temp))
}

// modeHere returns the mode that a path of the workspace gets in the directory: without the umask's bits, and
// accessible to its owner. A program can set any mode, such as one that lets all users of this host write.
func (f *Folder) modeHere(e *FileInfo) fs.FileMode {
	owner := fs.FileMode(0o400)
	if e.Kind == Dir {
		owner = 0o700
	}
	return fs.FileMode(e.Mode).Perm()&^f.umask | owner
}

// recordWritten records a path that Pull wrote. s is the stat of a file.
func (f *Folder) recordWritten(e *FileInfo, s stat) {
	f.base.Paths[e.Path] = &basePath{FileInfo: *e, Stat: s}
	if mode := uint32(f.modeHere(e)); e.Kind != Symlink && mode != e.Mode {
		f.base.Paths[e.Path].LocalMode = mode
	}
}

// isModeHere reports whether Pull would give e a mode that e does not have in the workspace.
func (f *Folder) isModeHere(mode uint32, e *FileInfo) bool {
	return e.Kind != Symlink && mode != e.Mode && f.readUmask() == nil && mode == uint32(f.modeHere(e))
}

// remove removes a path of the directory. A file that has changed since the scan stays, and is a conflict. A directory
// that is not empty stays too.
func (f *Folder) remove(d difference, r *Report) error {
	if d.here == nil {
		delete(f.base.Paths, d.path)
		return nil
	}
	if d.here.kind == Dir {
		if err := f.root.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			delete(f.base.Paths, d.path) // it contains local paths, so it stays and counts as our change
			r.Different = append(r.Different, d.path)
			return nil
		}
	} else if err := f.removeFile(d.path, d.here); errors.Is(err, errChanged) {
		r.Conflicts, r.Different = append(r.Conflicts, d.path), append(r.Different, d.path)
		delete(f.base.Paths, d.path)
		return nil
	} else if err != nil {
		return err
	}
	if d.there == nil {
		r.Removed = append(r.Removed, d.path)
		delete(f.base.Paths, d.path)
	}
	return nil
}

// removeFile removes a file or symbolic link. It first renames it, and renames it back if it has changed since the
// scan.
func (f *Folder) removeFile(p string, was *local) error {
	temp := tempName(p)
	if err := f.root.Rename(p, temp); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if f.unchanged(temp, was) {
		return f.root.Remove(temp)
	}
	return errors.Join(errChanged, f.restoreName(temp, p))
}

// restoreName renames a file back from its temporary name, or to a free name if p is taken.
func (f *Folder) restoreName(temp, p string) error {
	_, err := f.renameToFree(temp, p, ".yours-%d", 1)
	return err
}

// renameToFree renames temp to p or, if that exists, to p with the first free numbered suffix, and returns the name.
// Unlike a rename, it replaces nothing.
func (f *Folder) renameToFree(temp, p, suffix string, first int) (string, error) {
	name := p
	for i := range 100 {
		err := f.root.Link(temp, name)
		if err == nil {
			return name, f.root.Remove(temp)
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		name = p + fmt.Sprintf(suffix, first+i)
	}
	return "", fmt.Errorf("rename %q: 100 names such as %q are taken; the file is kept as %q", p, name, temp)
}

// unchanged reports whether a file, possibly renamed, is the one that was scanned.
func (f *Folder) unchanged(p string, was *local) bool {
	l, err := f.lstat(p)
	if err != nil || l == nil || was == nil || l.kind != was.kind || l.target != was.target {
		return false
	}
	a, b := l.stat, was.stat
	a.CTime, b.CTime = 0, 0 // a rename changes the change time
	return a == b
}

func tempName(p string) string {
	return path.Join(path.Dir(p), tempPrefix+strings.ToLower(rand.Text()))
}

// writeDir makes a directory. It renames a file of ours that has its name.
func (f *Folder) writeDir(d difference, r *Report, generation int64) error {
	if now, err := f.lstat(d.path); err == nil && (now == nil || now.kind != Dir) {
		name, err := f.renameToConflict(d.path, d.path, generation)
		if err != nil {
			return err
		}
		r.Conflicts, r.Written = append(r.Conflicts, d.path), append(r.Written, name)
		r.Different = append(r.Different, name)
	}
	if err := f.makeDir(d.path); err != nil {
		return err
	}
	if err := errors.Join(f.root.Chmod(d.path, f.modeHere(d.there)), f.chown(d.path)); err != nil {
		return err
	}
	f.recordWritten(d.there, stat{})
	if d.here == nil {
		r.Written = append(r.Written, d.path)
	}
	return nil
}

// makeDir makes a directory and those above it. It looks at the directory each time, because another process may have
// replaced it with a link, and at those above it once per apply, unless they were removed.
func (f *Folder) makeDir(dir string) error {
	delete(f.made, dir)
	err := MakeDirs(f.root, dir, f.made)
	if errors.Is(err, fs.ErrNotExist) {
		clear(f.made)
		err = MakeDirs(f.root, dir, f.made)
	}
	if errors.Is(err, ErrNotDir) {
		err = fmt.Errorf("%w; remove it, or synchronise again", err)
	}
	return err
}

// ErrNotDir is the error of MakeDirs if a file or a link has the name of a directory.
var ErrNotDir = errors.New("a file or link has its name")

// MakeDirs makes a directory of root and those above it. Unlike MkdirAll, it follows no links: a program may have put
// them into the workspace. If made is not nil, MakeDirs adds the directories to it, and skips those that it has.
func MakeDirs(root *os.Root, dir string, made map[string]bool) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := MakeDirs(root, path.Dir(dir), made); err != nil {
		return err
	}
	info, err := root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = root.Mkdir(dir, 0o755)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("make directory %q: %w", dir, ErrNotDir)
	}
	if err == nil && made != nil {
		made[dir] = true
	}
	return err
}

// chown sets a path's owner, if Options.Owner is set.
func (f *Folder) chown(p string) error {
	if f.o.Owner == nil {
		return nil
	}
	return f.root.Lchown(p, f.o.Owner.UID, f.o.Owner.GID)
}

// writeSymlink makes a symbolic link under a temporary name, and installs it.
func (f *Folder) writeSymlink(d difference, policy Policy, r *Report, generation int64) error {
	temp := tempName(d.path)
	if err := f.makeDir(path.Dir(d.path)); err != nil {
		return err
	}
	if err := f.root.Symlink(d.there.Target, temp); err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it no longer exists once it has its name
	if err := f.chown(temp); err != nil {
		return err
	}
	return f.install(temp, d, policy, r, generation, nil)
}

// writeFile writes a file under a temporary name, verifies it, and installs it.
func (f *Folder) writeFile(d difference, content io.Reader, policy Policy, r *Report, generation int64) error {
	if err := f.makeDir(path.Dir(d.path)); err != nil {
		return err
	}
	temp := tempName(d.path)
	out, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it no longer exists once it has its name
	defer out.Close()
	v := verifier{want: d.there}
	if _, err := io.Copy(io.MultiWriter(out, &v, &f.meter), io.LimitReader(content, d.there.Bytes+1)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	if !v.ok() {
		return fmt.Errorf("write %q: the content does not match its digest", d.path)
	}
	if err := errors.Join(f.chown(temp), out.Chmod(f.modeHere(d.there)),
		f.root.Chtimes(temp, d.there.Time, d.there.Time)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	return f.install(temp, d, policy, r, generation, out)
}

// install renames a written file to its path. If the path has changed since the scan, or has a change of ours that
// policy keeps, the written file gets a conflict name instead. out is the open file, or nil for a symbolic link.
func (f *Folder) install(temp string, d difference, policy Policy, r *Report, generation int64, out *os.File) error {
	err := errChanged
	if !d.ours || policy == Theirs {
		err = f.swap(temp, d)
	}
	name := d.path
	if errors.Is(err, errChanged) {
		r.Conflicts = append(r.Conflicts, d.path)
		if name, err = f.renameToConflict(temp, d.path, generation); err != nil {
			return err
		}
		f.record(d, d.there, stat{}) // our version now counts as a change to theirs
		r.Different = append(r.Different, d.path, name)
	} else if err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	} else {
		f.recordWritten(d.there, writtenStat(out, d.there))
	}
	r.Written = append(r.Written, name)
	return nil
}

// writtenStat returns the stat of a file that was just written, or zero if it is unknown or has changed since.
func writtenStat(out *os.File, e *FileInfo) stat {
	if out == nil {
		return stat{}
	}
	info, err := out.Stat()
	if err != nil || info.Size() != e.Bytes || !info.ModTime().Equal(e.Time) {
		return stat{}
	}
	return statOf(info).unlessRacy(time.Now())
}

// renameToConflict renames a file to a conflict name for p, and returns that name.
func (f *Folder) renameToConflict(temp, p string, generation int64) (string, error) {
	return f.renameToFree(temp, conflictName(p, generation), ".%d", 2)
}

// swap replaces the scanned file with temp. It returns errChanged if the file has changed since the scan.
func (f *Folder) swap(temp string, d difference) error {
	if d.here == nil || d.here.kind != d.there.Kind { // there is no file to replace, or it is already removed
		err := f.root.Link(temp, d.path)
		if errors.Is(err, fs.ErrExist) {
			return errChanged
		}
		if err != nil {
			return err
		}
		return f.root.Remove(temp)
	}
	dir, err := f.root.Open(path.Dir(d.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	a, b := path.Base(temp), path.Base(d.path)
	ok, err := exchange(dir, a, b)
	switch {
	case !ok: // not atomic: the file may change between the check and the rename
		if !f.unchanged(d.path, d.here) {
			return errChanged
		}
		return f.root.Rename(temp, d.path)
	case errors.Is(err, fs.ErrNotExist):
		return errChanged
	case err != nil:
		return err
	case f.unchanged(temp, d.here):
		return nil // the caller removes temp, which is the old file now
	}
	if _, err = exchange(dir, a, b); err != nil { // the new file was removed: restore the old one
		return errors.Join(err, f.restoreName(temp, d.path))
	}
	return errChanged
}
