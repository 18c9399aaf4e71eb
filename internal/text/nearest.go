package text

import (
	"slices"
	"strings"
)

// Nearest returns the candidate with the smallest Distance to name, ignoring case, or "" if every Distance
// exceeds limit. Among equally near candidates it returns the first in alphabetical order.
func Nearest(name string, candidates []string, limit int) string {
	best := ""
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := Distance(strings.ToLower(name), strings.ToLower(c)); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}

// Distance returns how many characters must be inserted, deleted, replaced or swapped with a neighbour to turn
// a into b (optimal string alignment, the restricted Damerau-Levenshtein distance).
func Distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			replace := 1
			if ra[i-1] == rb[j-1] {
				replace = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+replace)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(ra)][len(rb)]
}
