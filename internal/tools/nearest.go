package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/text"
)

// UnknownError reports that a tool, server or argument does not exist, with the nearest names that do.
type UnknownError struct {
	What    string // tool | server | argument
	Name    string
	Nearest []string // the most similar first
}

func (e *UnknownError) Error() string {
	msg := fmt.Sprintf("unknown %s %q", e.What, e.Name)
	if len(e.Nearest) > 0 {
		msg += "; did you mean " + strings.Join(e.Nearest, " or ") + "?"
	}
	return msg
}

// Nearest returns up to n of the names, the most similar to name first. If there are at most ten names, it
// returns the closest even if they are not similar, so that the reader learns which names exist.
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

// maxName is how many bytes of an untrusted name are considered, because Distance takes quadratic time.
const maxName = 128

// printableName returns an untrusted name in a form that is safe in an error.
func printableName(s string) string { return text.Printable(text.Truncate(s, maxName)) }
