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
// ignores case and cannot hold them. Of paths that clash, one is not returned: the one that the directory has already,
// or else the first.
func (f *Folder) clashing(there map[string]*FileInfo) (clashing []string, err error) {
	var had, others []string
	for _, p := range slices.Sorted(maps.Keys(there)) {
		if f.base.Paths[p] != nil {
			had = append(had, p)
		} else {
			others = append(others, p)
		}
	}
	spelling := map[string]string{} // of each path and parent, by its lower-case form
	for _, p := range slices.Concat(had, others) {
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

// clashes reports whether spelling has p or one of its parents in another case. If not, it adds them.
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
	name := tempName("case")
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
