package state

import (
	"strings"

	"github.com/codefleet/codefleet/internal/state/ignore"
)

// IgnoreFile in a workspace lists what is not committed; package ignore says how.
const IgnoreFile = ignore.FileName

// DefaultExcludes are never committed: they are made again by whoever needs them.
var DefaultExcludes = ignore.Defaults

// ignoreRules reads the tree's own rules, which are as hostile as the rest of it.
func (s *Store) ignoreRules(t *Tree) ignore.Rules {
	data, err := t.ReadFile(ignore.FileName, ignore.MaxFile)
	if err != nil {
		data = nil // there is none
	}
	return s.excludes(data)
}

func (s *Store) excludes(own []byte) ignore.Rules {
	return append(ignore.Parse([]byte(strings.Join(s.opts.Excludes, "\n"))), ignore.Parse(own)...)
}
