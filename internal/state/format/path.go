package format

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of paths in bytes, whatever the quota; file systems allow as much.
const (
	MaxPath      = 4096
	MaxComponent = 255
	maxDepth     = 128
)

// CheckPath returns an error unless p is a clean relative path within the limits. Names are bytes: they need not be
// UTF-8, and are never normalised.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("empty path")
	case len(p) > MaxPath:
		return fmt.Errorf("path of %d bytes, limit is %d", len(p), MaxPath)
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
		case len(name) > MaxComponent:
			return fmt.Errorf("path %q has a component of %d bytes, limit is %d", p, len(name), MaxComponent)
		case depth > maxDepth:
			return fmt.Errorf("path %q is more than %d deep", p, maxDepth)
		}
	}
	return nil
}

// ParentDir returns the directory of p, or "" at the top.
func ParentDir(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// TopDir returns the first component of p.
func TopDir(p string) string {
	name, _, _ := strings.Cut(p, "/")
	return name
}
