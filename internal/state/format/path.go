package format

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of paths, which no quota raises. The first two are those of Linux file systems.
const (
	MaxPath      = 4096 // bytes
	MaxComponent = 255  // bytes
	maxDepth     = 128  // components
)

// CheckPath returns an error unless p is a clean relative path within the limits. Names are bytes: they need not be
// UTF-8, and are never normalised.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("the path is empty")
	case len(p) > MaxPath:
		return fmt.Errorf("the path is %d bytes; the limit is %d", len(p), MaxPath)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("path %q contains a NUL byte", p)
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
			return fmt.Errorf("path %q has a component of %d bytes; the limit is %d", p, len(name), MaxComponent)
		case depth > maxDepth:
			return fmt.Errorf("path %q has more than %d components", p, maxDepth)
		}
	}
	return nil
}

// ParentDir returns p's directory, or "" at the top.
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
