package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is how many symbolic links a path may contain, as in Linux.
const maxLinks = 40

// Resolve returns the path of name for a process whose root directory is root. It follows symbolic links,
// resolves absolute ones from root, and never leaves root. A missing component counts as a directory. The result
// contains no links, so that os.Root accepts it, and is valid while the tree does not change.
func Resolve(root *os.Root, name string) (string, error) {
	var at []string
	left, links := strings.Split(name, "/"), 0
	for len(left) > 0 {
		next := left[0]
		left = left[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			at = at[:max(0, len(at)-1)]
			continue
		}
		at = append(at, next)
		info, err := root.Lstat(path.Join(at...))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", name)
		}
		target, err := root.Readlink(path.Join(at...))
		if err != nil {
			return "", err
		}
		at = at[:len(at)-1]
		if strings.HasPrefix(target, "/") {
			at = nil
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return path.Join(append([]string{"."}, at...)...), nil
}
