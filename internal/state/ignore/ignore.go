// Package ignore decides which paths of a directory are not part of a workspace: for commits and for directory sync.
// The
// key type is Rules.
package ignore

import (
	"bufio"
	"bytes"
	"path"
	"strings"
)

// Defaults are never committed: they are generated files.
var Defaults = []string{"__pycache__/", ".venv/", "node_modules/"}

// FileName is the file of patterns of paths that are not committed, one per line; # begins a
// comment. A pattern without a slash matches names at any depth, one with a
// slash matches from the top; a slash at the end matches directories only; *, ? and
// [a-z] match within a name. If a matching path was committed before, the next commit
// removes it.
const FileName = ".workspaceignore"

// MaxFile is how many bytes of the file are read.
const MaxFile = 64 << 10

// Rules are patterns. The zero value excludes nothing.
type Rules []rule

type rule struct {
	pattern  string
	anchored bool
	dirOnly  bool
}

// Parse reads patterns, one per line. It ignores invalid ones.
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

// Match reports whether a path is excluded. It does not consider the directories above.
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

// MatchBelow reports whether a file or one of the directories above it is excluded.
func (rules Rules) MatchBelow(p string) bool {
	for i := range len(p) {
		if p[i] == '/' && rules.Match(p[:i], true) {
			return true
		}
	}
	return rules.Match(p, false)
}
