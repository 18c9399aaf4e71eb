package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is how many symbolic links a path may contain, as in Linux.
const maxLinks = 40

// MaxDepth is how many components a path may have that Resolve returns or meets in a link. Each one costs as many
// system calls as it is deep.
const MaxDepth = 256

// Resolve returns the path of name for a process whose root directory is root. It follows symbolic links,
// resolves absolute ones from root, and never leaves root. A missing component counts as a directory. The result
// contains no links, so that os.Root accepts it, and is valid while the tree does not change. Resolve fails when ctx
// ends.
func Resolve(ctx context.Context, root *os.Root, name string) (string, error) {
	var resolved []string
	remaining, links := strings.Split(name, "/"), 0
	for len(remaining) > 0 {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if len(resolved)+len(remaining) > MaxDepth {
			return "", fmt.Errorf("%.200s: the path has more than %d components, counting those of its links",
				name, MaxDepth)
		}
		next := remaining[0]
		remaining = remaining[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			resolved = resolved[:max(0, len(resolved)-1)]
			continue
		}
		resolved = append(resolved, next)
		info, err := root.Lstat(path.Join(resolved...))
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
			return "", fmt.Errorf("%.200s: too many symbolic links", name)
		}
		target, err := root.Readlink(path.Join(resolved...))
		if err != nil {
			return "", err
		}
		resolved = resolved[:len(resolved)-1]
		if strings.HasPrefix(target, "/") {
			resolved = nil
		}
		remaining = append(strings.Split(target, "/"), remaining...)
	}
	return path.Join(append([]string{"."}, resolved...)...), nil
}
