// Package ignore decides which paths of a directory are not part of a workspace. Commits and directory sync use it. The
// key type is Rules.
package ignore

import (
	"bufio"
	"bytes"
	"path"
	"strings"
)

// Defaults are the patterns of generated files, which are not committed by default.
var Defaults = []string{"__pycache__/", ".venv/", "node_modules/"}

// FileName is the name of the file that lists patterns of paths that are not committed, one per line. A # begins a
// comment line. A pattern that contains a slash is matched from the top, other patterns match names at any depth, and a
// pattern that ends in a slash matches directories only. *, ? and [a-z] match within a name. If a matching path was
// committed before, the next commit removes it.
const FileName = ".workspaceignore"

// MaxFile is how many bytes of the file are read at most.
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

// Match reports whether the rules match a path. It does not consider the directories above it.
func (rules Rules) Match(p string, dir bool) bool {
	name := path.Base(p)
	for _, r := range rules {
		if r.dirOnly && !dir {
			continue
		}
		subject := name
		if r.anchored {
			subject = p
		}
		if ok, _ := path.Match(r.pattern, subject); ok || r.pattern == subject {
			return true
		}
	}
	return false
}

// MatchBelow reports whether the rules match a file or one of the directories above it.
func (rules Rules) MatchBelow(p string) bool {
	for i := range len(p) {
		if p[i] == '/' && rules.Match(p[:i], true) {
			return true
		}
	}
	return rules.Match(p, false)
}
