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

// errTaken is a path that somebody here has changed since it was looked at.
var errTaken = errors.New("changed here meanwhile")

// apply makes what is here what is there: removals first, deepest first, then directories and links,
// then files as they arrive.
func (f *Folder) apply(ctx context.Context, generation int64, todo []difference, policy Policy, r *Report) error {
	for _, d := range slices.Backward(todo) {
		if d.there == nil || d.here != nil && d.here.kind != d.there.Kind && (!d.ours || policy != KeepBoth) {
			if d.there == nil && d.ours && policy == KeepBoth {
				f.meet(d.path, nil, nil, time.Now()) // they removed what we edited: the edit stays
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
			return fmt.Errorf("the workspace sent %q, which was not asked for", p)
		}
		delete(files, p)
		return f.file(d, content, policy, r, generation)
	})
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("the workspace sent %d files less than it has", len(files))
	}
	return err
}

// remove removes a path here, if it still is what it was.
func (f *Folder) remove(d difference, r *Report) error {
	if d.here == nil {
		f.meet(d.path, nil, nil, time.Now())
		return nil
	}
	if d.here.kind == Dir {
		if err := f.root.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.meet(d.path, nil, nil, time.Now()) // something of ours is in it: it stays, and is a change of ours
			return nil
		}
	} else if err := f.takeAway(d.path, d.here); errors.Is(err, errTaken) {
		r.Conflicts = append(r.Conflicts, d.path)
		f.meet(d.path, nil, nil, time.Now())
		return nil
	} else if err != nil {
		return err
	}
	if d.there == nil {
		r.Removed = append(r.Removed, d.path)
		f.meet(d.path, nil, nil, time.Now())
	}
	return nil
}

// takeAway removes a file or link. Under another name it is looked at again, and gets its own back
// if somebody has changed it.
func (f *Folder) takeAway(p string, was *local) error {
	temp := tempName(p)
	if err := f.root.Rename(p, temp); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if f.still(temp, was) {
		return f.root.Remove(temp)
	}
	return errors.Join(errTaken, f.giveBack(temp, p))
}

// giveBack gives a file its name again; where somebody has taken that meanwhile, another one.
func (f *Folder) giveBack(temp, p string) error {
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
	return fmt.Errorf("%s: it is kept as %s", p, temp)
}

// still reports whether a file, under whatever name, is the one that was looked at.
func (f *Folder) still(p string, was *local) bool {
	l, err := f.look(p)
	if err != nil || l == nil || was == nil || l.kind != was.kind || l.target != was.target {
		return false
	}
	a, b := l.stat, was.stat
	a.CTime, b.CTime = 0, 0 // a new name changes it
	return a == b
}

func tempName(p string) string {
	return path.Join(path.Dir(p), tempPrefix+strings.ToLower(rand.Text()))
}

// dir makes a directory. A file of ours that has its name steps aside.
func (f *Folder) dir(d difference, r *Report, generation int64) error {
	if now, err := f.look(d.path); err == nil && (now == nil || now.kind != Dir) {
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
	f.meet(d.path, d.there, nil, time.Now())
	if d.here == nil {
		r.Written = append(r.Written, d.path)
	}
	return nil
}

func (f *Folder) own(p string) error {
	if f.o.Owner == nil {
		return nil
	}
	return f.root.Lchown(p, f.o.Owner.UID, f.o.Owner.GID)
}

func (f *Folder) link(d difference, policy Policy, r *Report, generation int64) error {
	temp := tempName(d.path)
	if err := f.parents(d.path); err != nil {
		return err
	}
	if err := f.root.Symlink(d.there.Target, temp); err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it is there no more when it has its name
	if err := f.own(temp); err != nil {
		return err
	}
	return f.place(temp, d, policy, r, generation, nil)
}

// parents makes the directories of a path.
func (f *Folder) parents(p string) error {
	if dir := path.Dir(p); dir != "." {
		return f.root.MkdirAll(dir, 0o755)
	}
	return nil
}

// file writes one file under another name, verifies it, and gives it its own.
func (f *Folder) file(d difference, content io.Reader, policy Policy, r *Report, generation int64) (err error) {
	if err := f.parents(d.path); err != nil {
		return err
	}
	temp := tempName(d.path)
	out, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.root.Remove(temp) //nolint:errcheck // it is there no more when it has its name
	defer out.Close()
	v := verifier{entry: d.there}
	if _, err := io.Copy(io.MultiWriter(out, &v), io.LimitReader(content, d.there.Bytes+1)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	if !v.ok() {
		return fmt.Errorf("write %q: what arrived is not what the workspace has", d.path)
	}
	if err := errors.Join(f.own(temp), out.Chmod(fs.FileMode(d.there.Mode)),
		f.root.Chtimes(temp, d.there.Time, d.there.Time)); err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	}
	return f.place(temp, d, policy, r, generation, out)
}

// place gives what was written its name, if what has that is what was looked at; beside it otherwise.
func (f *Folder) place(temp string, d difference, policy Policy, r *Report, generation int64, out *os.File) error {
	err := errTaken
	if !d.ours || policy == Theirs {
		err = f.swap(temp, d)
	}
	name := d.path
	if errors.Is(err, errTaken) {
		r.Conflicts = append(r.Conflicts, d.path)
		if name, err = f.beside(temp, d.path, generation); err != nil {
			return err
		}
		f.meet(d.path, d.there, nil, time.Now()) // what is here is a change of that
	} else if err != nil {
		return fmt.Errorf("write %q: %w", d.path, err)
	} else {
		f.meet(d.path, d.there, nil, time.Now())
		f.met.Paths[d.path].Stat = written(out, d.there)
	}
	r.Written = append(r.Written, name)
	return nil
}

// written is the stat of a file that was just written, unless somebody has touched it since.
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

// beside gives a file the name of the other version of a path.
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

// swap puts temp in the place of what was looked at, or returns errTaken.
func (f *Folder) swap(temp string, d difference) error {
	if d.here == nil || d.here.kind != d.there.Kind { // it is removed already
		err := f.root.Link(temp, d.path)
		if errors.Is(err, fs.ErrExist) {
			return errTaken
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
	case !ok: // a short while between looking and replacing remains
		if !f.still(d.path, d.here) {
			return errTaken
		}
		return f.root.Rename(temp, d.path)
	case errors.Is(err, fs.ErrNotExist):
		return errTaken
	case err != nil:
		return err
	case f.still(temp, d.here):
		return nil // the old one is removed with the temporary name
	}
	_, err = exchange(dir, a, b)
	if err != nil { // somebody has taken ours away: theirs is not lost
		return errors.Join(err, f.giveBack(temp, d.path))
	}
	return errTaken
}
