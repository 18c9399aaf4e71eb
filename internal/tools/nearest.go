package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// UnknownError says that there is no such tool or argument, and what was perhaps meant.
type UnknownError struct {
	What    string // tool | server | argument
	Name    string
	Nearest []string // best first
}

func (e *UnknownError) Error() string {
	msg := fmt.Sprintf("no %s %q", e.What, e.Name)
	if len(e.Nearest) > 0 {
		msg += "; the nearest: " + strings.Join(e.Nearest, ", ")
	}
	return msg
}

// Nearest returns at most n of the names, the most similar to name first. When names are few, it
// returns the best even if none is close: the reader learns what there is.
func Nearest(name string, names []string, n int) []string {
	type scored struct {
		name string
		cost int
	}
	want := strings.ToLower(clip(name))
	all := make([]scored, 0, len(names))
	for _, s := range names {
		got := strings.ToLower(clip(s))
		cost := distance(want, got)
		if strings.Contains(got, want) || strings.Contains(want, got) {
			cost = min(cost, 1)
		}
		all = append(all, scored{s, cost})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name)) })
	far := max(3, utf8.RuneCountInString(want)/2)
	var out []string
	for i, s := range all {
		if i == n || (s.cost > far && len(names) > 10) {
			break
		}
		out = append(out, s.name)
	}
	return out
}

// clip bounds the quadratic work on names from outside.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// distance is Levenshtein's, over runes.
func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	row := make([]int, len(rb)+1)
	for j := range row {
		row[j] = j
	}
	for i, ca := range ra {
		diagonal := row[0]
		row[0] = i + 1
		for j, cb := range rb {
			cost := diagonal
			if ca != cb {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(rb)]
}
