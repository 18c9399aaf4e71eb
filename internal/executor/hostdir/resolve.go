package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// mostLinks is how many links one path may lead through, as in Linux.
const mostLinks = 40

// Resolve returns where name leads for a process whose root directory is root: links are followed,
// absolute ones from root, and nothing leads out of it. What does not exist is taken for a directory.
// The result has no link in it, so os.Root takes it; it is right for as long as nobody else changes
// the tree.
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
		if links++; links > mostLinks {
			return "", fmt.Errorf("%s: too many links", name)
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
