package state

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Limits of paths, whatever the quota: below what file systems take.
const (
	maxPath      = 4096
	maxComponent = 255
	maxDepth     = 128
)

// checkPath accepts clean relative paths as bytes: names are kept as they are,
// valid UTF-8 or not, never normalised.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("empty path")
	case len(p) > maxPath:
		return fmt.Errorf("path of %d bytes, limit is %d", len(p), maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("path %q has a NUL", p)
	case p[0] == '/':
		return fmt.Errorf("path %q is absolute", p)
	}
	depth := 0
	for name := range strings.SplitSeq(p, "/") {
		depth++
		switch {
		case name == "" || name == "." || name == "..":
			return fmt.Errorf("path %q is not clean", p)
		case len(name) > maxComponent:
			return fmt.Errorf("path %q has a component of %d bytes, limit is %d", p, len(name), maxComponent)
		case depth > maxDepth:
			return fmt.Errorf("path %q is more than %d deep", p, maxDepth)
		}
	}
	return nil
}

// parent returns the directory of p, or "" at the top.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// top returns the first component of p.
func top(p string) string {
	name, _, _ := strings.Cut(p, "/")
	return name
}

// mergesByKey reports whether p is a JSON file that merges per top-level key.
func mergesByKey(p string) bool {
	return p == "state.json" || strings.HasPrefix(p, "state/") && path.Ext(p) == ".json"
}
