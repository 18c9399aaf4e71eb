package state

import (
	"bufio"
	"bytes"
	"path"
	"strings"
)

// DefaultExcludes are never committed: they are made again by whoever needs them.
var DefaultExcludes = []string{"__pycache__/", ".venv/", "node_modules/"}

// IgnoreFile lists patterns of paths that are not committed, one a line, # begins a
// comment. A pattern without a slash matches names at any depth, one with a
// slash matches from the top, a slash at the end means directories only; *, ? and
// [a-z] match within a name. What matches is not part of the workspace: if it was
// committed before, the next commit removes it.
const IgnoreFile = ".workspaceignore"

const maxIgnoreFile = 64 << 10

type ignoreRules []ignoreRule

type ignoreRule struct {
	pattern  string
	anchored bool
	dirOnly  bool
}

func parseIgnore(lines []byte) ignoreRules {
	var rules ignoreRules
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		rule := ignoreRule{pattern: strings.TrimSuffix(line, "/"), dirOnly: strings.HasSuffix(line, "/")}
		if strings.Contains(rule.pattern, "/") {
			rule.anchored = true
			rule.pattern = strings.TrimPrefix(rule.pattern, "/")
		}
		if _, err := path.Match(rule.pattern, ""); err == nil && rule.pattern != "" {
			rules = append(rules, rule)
		}
	}
	return rules
}

// match reports whether one path is excluded. Paths below an excluded
// directory are never asked for.
func (rules ignoreRules) match(p string, dir bool) bool {
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

// ignoreRules reads the tree's own rules, which are as hostile as the rest of it.
func (s *Store) ignoreRules(t *Tree) ignoreRules {
	rules := parseIgnore([]byte(strings.Join(s.opts.Excludes, "\n")))
	data, err := t.ReadFile(IgnoreFile, maxIgnoreFile)
	if err != nil {
		return rules
	}
	return append(rules, parseIgnore(data)...)
}
