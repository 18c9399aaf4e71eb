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

// errChanged is returned when a path changed since the scan.
var errChanged = errors.New("changed here meanwhile")

// apply makes the directory equal to the workspace: removals first, deepest first, then directories and symbolic links,
// then files in the order in which they arrive.
func (f *Folder) apply(ctx context.Context, generation int64, todo []difference, policy Policy, r *Report) error {
	for _, d := range slices.Backward(todo) {
		if d.there == nil || d.here != nil && d.here.kind != d.there.Kind && (!d.ours || policy != KeepBoth) {
			if d.there == nil && d.ours && policy == KeepBoth {
				f.record(d.path, nil, nil, time.Now()) // they removed what we edited: the edit stays
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
			err = f.dir(d, r, generation)
		case Link:
			err = f.link(d, policy, r, generation)
		default:
			files[d.path] = d
			wanted = append(wanted, d.path)
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
		return f.file(d, content, policy, r, generation)
	})
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("the workspace sent %d files less than it has", len(files))
	}
	return err
}

// remove removes a path of the directory if it has not changed since the scan.
func (f *Folder) remove(d difference, r *Report) error {
	if d.here == nil {
		f.record(d.path, nil, nil, time.Now())
		return nil
	}
	if d.here.kind == Dir {
		if err := f.root.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.record(d.path, nil, nil, time.Now()) // it has paths of ours: it stays, as our change
			return nil
		}
	} else if err := f.removeFile(d.path, d.here); errors.Is(err, errChanged) {
		r.Conflicts = append(r.Conflicts, d.path)
		f.record(d.path, nil, nil, time.Now())
		return nil
	} else if err != nil {
		return err
	}
	if d.there == nil {
		r.Removed = append(r.Removed, d.path)
		f.record(d.path, nil, nil, time.Now())
	}
	return nil
}

// removeFile removes a file or symbolic link. It renames it, verifies that it has not changed since the scan, and
// renames
// it back if it has.
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

// restoreName gives a file its name back, or another one if the name is taken.
func (f *Folder) restoreName(temp, p string) error {
	for i := range 100 {
		name := p
		if i > 0 {
			name = fmt.Sprintf("%s.yours-%d", p, i)
		}
		err := f.root.Link(temp, name)
		if err == nil {
			return f.root.Remove(temp)
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return fmt.Errorf("%s: kept as %s", p, temp)
}

// unchanged reports whether a file, possibly renamed, is the one that was scanned.
func (f *Folder) unchanged(p string, was *local) bool {
	l, err := f.lstat(p)
	if err != nil || l == nil || was == nil || l.kind != was.kind || l.target != was.target {
		return false
	}
	a, b := l.stat, was.stat
	a.CTime, b.CTime = 0, 0 // renaming changes it
	return a == b
}

func tempName(p string) string {
	return path.Join(path.Dir(p), tempPrefix+strings.ToLower(rand.Text()))
}

// dir makes a directory. A file of ours of that name is renamed.
func (f *Folder) dir(d difference, r *Report, generation int64) error {
	if now, err := f.lstat(d.path); err == nil && (now == nil || now.kind != Dir) {
		name, err := f.beside(d.path, d.path, generation)
		if err != nil {
			return err
		}
		r.Conflicts, r.Written = append(r.Conflicts, d.path), append(r.Written, name)
	}
	if err := f.root.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	if err := errors.Join(f.root.Chmod(d.path, fs.FileMode(d.there.Mode)), f.own(d.path)); err != nil {
		return err
	}
	f.record(d.path, d.there, nil, time.Now())
	if d.here == nil {
		r.Written = append(r.Written, d.path)
	}
	return nil
}

// own sets the owner of a path.
func (f *Folder) own(p string) error {
	if f.o.Owner == nil {
		return nil
	}
	return f.root.Lchown(p, f.o.Owner.UID, f.o.Owner.GID)
}

// link makes a symbolic link.
func (f *Folder) link(d difference, policy Policy, r *Report, generation int64) error {
	temp := tempName(d.path)
	if err := f.parents(d.path); err != nil {
		return err
	}
	if err := f.root.Symlink(d.there.Target, temp); err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it no longer exists once it has its name
	if err := f.own(temp); err != nil {
		return err
	}
	return f.install(temp, d, policy, r, generation, nil)
}

// parents makes the directories of a path.
func (f *Folder) parents(p string) error {
	if dir := path.Dir(p); dir != "." {
		return f.root.MkdirAll(dir, 0o755)
	}
	return nil
}

// file writes a file under a temporary name, verifies it, and installs it.
func (f *Folder) file(d difference, content io.Reader, policy Policy, r *Report, generation int64) (err error) {
	if err := f.parents(d.path); err != nil {
		return err
	}
	temp := tempName(d.path)
	out, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it no longer exists once it has its name
	defer out.Close()
	v := verifier{entry: d.there}
	if _, err := io.Copy(io.MultiWriter(out, &v), io.LimitReader(content, d.there.Bytes+1)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	if !v.ok() {
		return fmt.Errorf("write %q: the content does not match the digest of the workspace", d.path)
	}
	if err := errors.Join(f.own(temp), out.Chmod(fs.FileMode(d.there.Mode)),
		f.root.Chtimes(temp, d.there.Time, d.there.Time)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	return f.install(temp, d, policy, r, generation, out)
}

// install gives a written file its name if the path has not changed since the scan, and the name of a conflict
// otherwise.
func (f *Folder) install(temp string, d difference, policy Policy, r *Report, generation int64, out *os.File) error {
	err := errChanged
	if !d.ours || policy == Theirs {
		err = f.swap(temp, d)
	}
	name := d.path
	if errors.Is(err, errChanged) {
		r.Conflicts = append(r.Conflicts, d.path)
		if name, err = f.beside(temp, d.path, generation); err != nil {
			return err
		}
		f.record(d.path, d.there, nil, time.Now()) // our version is a change of theirs
	} else if err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	} else {
		f.record(d.path, d.there, nil, time.Now())
		f.base.Paths[d.path].Stat = written(out, d.there)
	}
	r.Written = append(r.Written, name)
	return nil
}

// written returns the stat of a file that was just written, or the zero value if it has changed since.
func written(out *os.File, e *Entry) stat {
	if out == nil {
		return stat{}
	}
	info, err := out.Stat()
	if err != nil || info.Size() != e.Bytes || !info.ModTime().Equal(e.Time) {
		return stat{}
	}
	return statOf(info).unlessRacy(time.Now())
}

// beside renames a file to the name of a conflict.
func (f *Folder) beside(temp, p string, generation int64) (string, error) {
	for i := range 100 {
		name := conflictName(p, generation)
		if i > 0 {
			name += fmt.Sprintf(".%d", i+1)
		}
		err := f.root.Link(temp, name)
		if err == nil {
			return name, f.root.Remove(temp)
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s: too many conflicts", p)
}

// swap replaces the scanned file by temp, or returns errChanged.
func (f *Folder) swap(temp string, d difference) error {
	if d.here == nil || d.here.kind != d.there.Kind { // already removed
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
		return nil // the old one is removed with the temporary name
	}
	_, err = exchange(dir, a, b)
	if err != nil { // ours was removed: keep theirs
		return errors.Join(err, f.restoreName(temp, d.path))
	}
	return errChanged
}
