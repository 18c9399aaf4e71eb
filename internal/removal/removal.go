// Package removal removes what hostile programs have left in directories. os.RemoveAll and os.Root.RemoveAll keep a
// descriptor open for each level, so directories many thousand levels deep would use up the descriptors of this
// process.
package removal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// maxDepth is the number of directory levels that are entered. Deeper directories are first moved up.
const maxDepth = 100

// All removes name, a path in root, and everything below it. It does not follow symbolic links, and needs few
// descriptors, however deep the directories are. It succeeds if the path does not exist. No other process may change
// the directory at the same time.
func All(root *os.Root, name string) error {
	err := root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, openErr := openDir(root, name)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	r := remover{top: dir}
	if err := errors.Join(r.empty(dir, "", 1), dir.Close()); err != nil {
		return err
	}
	return root.Remove(name)
}

// remover empties the directory top.
type remover struct {
	top   *os.Root
	moved int // number in the name of the directory that was last moved to top
}

// empty removes everything in dir. path is dir's path in top, and is empty or ends with a slash. depth is dir's level,
// counted from 1.
func (r *remover) empty(dir *os.Root, path string, depth int) error {
	for {
		names, err := someNames(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, path, name, depth); err != nil {
				return err
			}
		}
	}
}

// remove removes a name in dir. A directory that is not empty and is deeper than maxDepth is moved to top instead.
func (r *remover) remove(dir *os.Root, path, name string, depth int) error {
	err := dir.Remove(name)
	if err == nil {
		return nil
	}
	if depth == maxDepth {
		return r.moveUp(path + name)
	}
	below, openErr := openDir(dir, name)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	if err := errors.Join(r.empty(below, path+name+"/", depth+1), below.Close()); err != nil {
		return err
	}
	return dir.Remove(name)
}

// moveUp moves the directory at path to a free name in top, where a later iteration of empty finds it.
func (r *remover) moveUp(path string) error {
	if err := allow(r.top, path); err != nil { // a rename also changes the directory's reference to its parent
		return err
	}
	for {
		r.moved++
		free := ".removed-" + strconv.Itoa(r.moved)
		_, err := r.top.Lstat(free)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return r.top.Rename(path, free)
		case err != nil:
			return err
		}
	}
}

// openDir opens a directory in parent.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	if err := allow(parent, name); err != nil {
		return nil, err
	}
	return parent.OpenRoot(name)
}

// allow gives this user access to a directory whose owner may have removed all permissions.
func allow(parent *os.Root, name string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return parent.Chmod(name, 0o700)
}

// someNames returns up to 1,024 names in a directory, or none if it is empty.
func someNames(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1024)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
