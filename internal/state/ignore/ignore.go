// Package ignore decides which paths are not part of a workspace. Whoever looks at a directory that is
// to become one uses it: the store at a commit, and who pushes a folder. The key type is Rules.
package ignore

import (
	"bufio"
	"bytes"
	"path"
	"strings"
)

// Defaults are never committed: they are made again by whoever needs them.
var Defaults = []string{"__pycache__/", ".venv/", "node_modules/"}

// FileName lists patterns of paths that are not committed, one a line, # begins a
// comment. A pattern without a slash matches names at any depth, one with a
// slash matches from the top, a slash at the end means directories only; *, ? and
// [a-z] match within a name. What matches is not part of the workspace: if it was
// committed before, the next commit removes it.
const FileName = ".workspaceignore"

// MaxFile is how many bytes of the file count.
const MaxFile = 64 << 10

// Rules are patterns. The zero value excludes nothing.
type Rules []rule

type rule struct {
	pattern  string
	anchored bool
	dirOnly  bool
}

// Parse reads patterns, one a line. It passes over what is none.
func Parse(lines []byte) Rules {
	var rules Rules
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		r := rule{pattern: strings.TrimSuffix(line, "/"), dirOnly: strings.HasSuffix(line, "/")}
		if strings.Contains(r.pattern, "/") {
			r.anchored = true
			r.pattern = strings.TrimPrefix(r.pattern, "/")
		}
		if _, err := path.Match(r.pattern, ""); err == nil && r.pattern != "" {
			rules = append(rules, r)
		}
	}
	return rules
}

// Match reports whether one path is excluded. Paths below an excluded
// directory are never asked for.
func (rules Rules) Match(p string, dir bool) bool {
	if len(rules) == 0 {
		return false
	}
	name := path.Base(p)
	for _, r := range rules {
		if r.dirOnly && !dir {
			continue
		}
		subject := name
		if r.anchored {
			subject = p
		}
		if r.pattern == subject {
			return true
		}
		if ok, _ := path.Match(r.pattern, subject); ok {
			return true
		}
	}
	return false
}

// MatchBelow is Match for the path of a file alone: it asks for the directories above, too.
func (rules Rules) MatchBelow(p string) bool {
	for i := range len(p) {
		if p[i] == '/' && rules.Match(p[:i], true) {
			return true
		}
	}
	return rules.Match(p, false)
}
