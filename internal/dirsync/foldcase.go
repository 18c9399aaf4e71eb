package dirsync

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// clashing returns the paths of the workspace that differ from others by case only, if the directory's file system
// ignores case and cannot hold them. Of several, the one that the directory has already is not returned.
func (f *Folder) clashing(there map[string]*FileInfo) (clashing []string, err error) {
	paths := slices.SortedFunc(maps.Keys(there), func(a, b string) int {
		if known := f.base.Paths[a] != nil; known != (f.base.Paths[b] != nil) {
			return map[bool]int{true: -1, false: 1}[known]
		}
		return strings.Compare(a, b)
	})
	spelling := map[string]string{} // of each path and its parents
	for _, p := range paths {
		if clashes(spelling, p) {
			clashing = append(clashing, p)
		}
	}
	if len(clashing) == 0 {
		return nil, nil
	}
	if folds, err := f.foldsCase(f.root); err != nil || !folds {
		return nil, err
	}
	return clashing, nil
}

// clashes reports whether p or one of its parents is spelled otherwise in spelling, and adds them if not.
func clashes(spelling map[string]string, p string) bool {
	for parent := p; parent != "."; parent = path.Dir(parent) {
		if other, ok := spelling[strings.ToLower(parent)]; ok && other != parent {
			return true
		}
	}
	for ; p != "."; p = path.Dir(p) {
		spelling[strings.ToLower(p)] = p
	}
	return false
}

// foldsCase reports whether a directory's file system ignores case.
func foldsCase(root *os.Root) (bool, error) {
	const name = tempPrefix + "case"
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_, err = root.Lstat(strings.ToUpper(name))
	folds := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return folds, errors.Join(err, file.Close(), root.Remove(name))
}
