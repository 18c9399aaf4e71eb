package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/text"
)

// UnknownError reports a tool, server or argument that does not exist, and similar names that do.
type UnknownError struct {
	What    string // tool | server | argument
	Name    string
	Nearest []string // the most similar first
}

func (e *UnknownError) Error() string {
	msg := fmt.Sprintf("no %s %q", e.What, e.Name)
	if len(e.Nearest) > 0 {
		msg += "; the nearest: " + strings.Join(e.Nearest, ", ")
	}
	return msg
}

// Nearest returns at most n of names, the most similar to name first. Of ten names or fewer it returns
// the best even if none is similar: the reader learns which names exist.
func Nearest(name string, names []string, n int) []string {
	type scored struct {
		name string
		cost int
	}
	want := strings.ToLower(text.Truncate(name, maxName))
	all := make([]scored, 0, len(names))
	for _, s := range names {
		got := strings.ToLower(text.Truncate(s, maxName))
		cost := text.Distance(want, got)
		if strings.Contains(got, want) || strings.Contains(want, got) {
			cost = min(cost, 1)
		}
		all = append(all, scored{s, cost})
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	limit := max(3, utf8.RuneCountInString(want)/2)
	var out []string
	for i, s := range all {
		if i == n || (s.cost > limit && len(names) > 10) {
			break
		}
		out = append(out, s.name)
	}
	return out
}

// maxName bounds the work on names of untrusted origin, in bytes: Distance takes quadratic time.
const maxName = 128

// printableName prepares a name of untrusted origin for an error.
func printableName(s string) string { return text.Printable(text.Truncate(s, maxName)) }
