package rules

import (
	"cmp"
	"maps"
	"slices"
)

// match holds the values of a clause's slots by name.
type match map[string]value

// value is what a slot has read.
type value struct {
	text string   // as written, in one line
	py   string   // as Python
	list []string // the elements of a list, in Python
}

// matcher matches a clause's tokens against patterns, and records the furthest token that it has reached.
type matcher struct {
	w        *writer
	tokens   []token
	furthest int
	steps    int
}

const (
	maxSteps = 100_000 // steps to match one clause
	maxSlot  = 200     // tokens of one slot
)

// match finds the ways in which one of the patterns matches all tokens. It calls done with the slots' values of each
// way, until done returns true, and reports whether done has returned true.
func (m *matcher) match(patterns [][]node, done func(match) bool) bool {
	return m.matchFrom(0, []node{{alternatives: patterns}}, match{}, done)
}

// matchFrom is match for the tokens from an index on, and for a list of nodes.
func (m *matcher) matchFrom(at int, nodes []node, values match, done func(match) bool) bool {
	m.furthest = max(m.furthest, at)
	if m.steps++; m.steps > maxSteps || len(nodes) == 0 {
		return m.steps <= maxSteps && at == len(m.tokens) && done(values)
	}
	n, rest := nodes[0], nodes[1:]
	switch {
	case n.words != nil:
		return at < len(m.tokens) && slices.Contains(n.words, m.tokens[at].lower) &&
			m.matchFrom(at+1, rest, values, done)
	case n.slot != "":
		for end := min(len(m.tokens), at+maxSlot); end > at && m.steps <= maxSteps; end-- {
			m.steps++
			v, ok := m.w.read(n.slot, m.tokens[at:end])
			if !ok {
				continue
			}
			v.text = cmp.Or(v.text, join(m.tokens[at:end]))
			with := maps.Clone(values)
			with[n.name] = v
			if m.matchFrom(end, rest, with, done) {
				return true
			}
		}
		return false
	}
	for _, a := range n.alternatives {
		if m.matchFrom(at, slices.Concat(a, rest), values, done) {
			return true
		}
	}
	return n.optional && m.matchFrom(at, rest, values, done)
}

// notUnderstood returns what keeps a clause from becoming a program, besides its bullet list: the first value with two
// readings, or else the words that are not in the grammar's vocabulary, and the unmatched rest if it begins after them.
func (m *matcher) notUnderstood() (out []string) {
	if i := slices.IndexFunc(m.tokens, func(t token) bool { return t.kind == ambiguous }); i >= 0 {
		return []string{m.tokens[i].text}
	}
	last := -1
	for i := 0; i < len(m.tokens); {
		t, size := m.tokens[i], placeSize(m.tokens[i:])
		known := size > 0 || m.w.grammar.vocabulary[t.lower] || t.lower == m.w.vars["table"]
		if (t.kind == word || t.kind == symbol) && !known {
			out, last = append(out, t.text), i
		}
		i += max(1, size)
	}
	if rest := min(m.furthest, len(m.tokens)-1); last < rest || len(out) == 0 {
		out = append(out, join(m.tokens[rest:]))
	}
	return out
}
