// Package ignore decides which paths of a directory are not part of a workspace. Commits and directory sync use it. The
// key type is Rules.
package ignore

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"sync/atomic"
)

// Defaults are the patterns of generated files, which are not committed by default. A link named __pycache__ is one of
// them: Python would run the bytecode behind it in place of the source.
var Defaults = []string{"__pycache__", ".venv/", "node_modules/"}

// FileName is the name of the file that lists patterns of paths that are not committed, one per line. A # begins a
// comment line. A pattern with a slash before its end is matched from the top, other patterns match names at any depth.
// A pattern that ends in a slash matches directories only. *, ? and [a-z] match within a name. If a matching path was
// committed before, the next commit removes it.
const FileName = ".workspaceignore"

const maxFile = 64 << 10 // bytes of the file that are read at most

// maxSteps bounds the work of Rules for all paths together. A step takes about as long as a comparison of two
// characters.
const maxSteps = 1 << 32

// ErrTooMany means that it would take too long to match so many paths with the patterns.
var ErrTooMany = errors.New(FileName +
	" has too many patterns for so many paths: use fewer or shorter ones with * and ?")

// Rules are patterns. The zero value excludes nothing. They are safe for concurrent use.
type Rules struct {
	rules []rule
	// Steps to match a character of a path's last name, and of the whole path, with all patterns.
	nameSteps, pathSteps int64
	steps                *atomic.Int64 // taken so far
}

type rule struct {
	pattern  string
	literal  bool // the pattern has no special characters
	anchored bool // the pattern is matched from the top
	dirOnly  bool
}

// Read returns the lines of the file that end within its first 64 KiB: a part of a pattern would match other paths.
func Read(file io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if len(data) > maxFile {
		data = data[:bytes.LastIndexByte(data, '\n')+1]
	}
	return data, err
}

// Parse reads patterns from each text, one per line. It ignores invalid ones.
func Parse(texts ...[]byte) Rules {
	rules := Rules{steps: new(atomic.Int64)}
	for _, text := range texts {
		scanner := bufio.NewScanner(bytes.NewReader(text))
		for scanner.Scan() {
			rules.add(strings.TrimSpace(scanner.Text()))
		}
	}
	return rules
}

func (rules *Rules) add(line string) {
	if line == "" || line[0] == '#' {
		return
	}
	r := rule{pattern: strings.TrimSuffix(line, "/"), dirOnly: strings.HasSuffix(line, "/")}
	if strings.Contains(r.pattern, "/") {
		r.anchored = true
		r.pattern = strings.TrimPrefix(r.pattern, "/")
	}
	if _, err := path.Match(r.pattern, ""); err != nil || r.pattern == "" {
		return
	}
	r.literal = !strings.ContainsAny(r.pattern, `*?[\`)
	rules.rules = append(rules.rules, r)
	switch {
	case r.literal:
	case r.anchored:
		rules.pathSteps += int64(len(r.pattern))
	default:
		rules.nameSteps += int64(len(r.pattern))
	}
}

// Err returns ErrTooMany if Match has given up, and nil otherwise.
func (rules Rules) Err() error {
	if rules.steps != nil && rules.steps.Load() > maxSteps {
		return ErrTooMany
	}
	return nil
}

// Match reports whether the rules match a path. It does not consider the directories above it. After too many steps, it
// returns false: see Err.
func (rules Rules) Match(p string, dir bool) bool {
	name := path.Base(p)
	if steps := rules.nameSteps*int64(len(name)) + rules.pathSteps*int64(len(p)); steps > 0 &&
		rules.steps.Add(steps) > maxSteps {
		return false
	}
	for _, r := range rules.rules {
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
		if !r.literal {
			if ok, _ := path.Match(r.pattern, subject); ok {
				return true
			}
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
