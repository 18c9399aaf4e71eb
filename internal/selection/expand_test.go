package selection

import (
	"slices"
	"strings"
	"testing"
)

// A trigram that a word contains several times counts once, so that no similarity is above 1.
func TestNeighbours(t *testing.T) {
	for _, c := range []struct {
		word, other string
		want        []neighbour
	}{
		{"banananas", "bananas", []neighbour{{"bananas", 1}}},
		{strings.Repeat("a", 300), strings.Repeat("a", 299), []neighbour{{strings.Repeat("a", 299), 1}}},
		{"multply", "multiply", []neighbour{{"multiply", 10. / 15}}},
		{"weather", "calculate", nil},
		{"unmount", "mount", nil},
		{"connect", "disconnect", nil},
		{"encrypt", "decrypt", nil},
	} {
		if got := newSpelling([]string{c.other}).neighbours(c.word); !slices.Equal(got, c.want) {
			t.Errorf("neighbours(%.20s) in %.20s = %.20v, want %.20v", c.word, c.other, got, c.want)
		}
	}
}
