package selection

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

//go:embed synonyms.txt
var synonymText string

// synonyms maps the stem of a task's word to stems of tools' words. It is parsed at its first use.
var synonyms = sync.OnceValue(func() map[string][]string { return parseSynonyms(synonymText) })

// parseSynonyms reads lines "left words: right words".
func parseSynonyms(s string) map[string][]string {
	table := map[string][]string{}
	for line := range strings.Lines(s) {
		left, right, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for from := range strings.FieldsSeq(left) {
			from = terms.Stem(from)
			for to := range strings.FieldsSeq(right) {
				if to = terms.Stem(to); to != from {
					table[from] = append(table[from], to)
				}
			}
		}
	}
	return table
}

// spelling finds the words of a vocabulary that share most of their trigrams with a word: typing errors, compounds
// ("wordcloud"), and forms that the stemmer does not join.
type spelling struct {
	words   []string
	grams   map[string][]int32
	lengths []uint8
}

const (
	minSpelling  = 4    // characters; shorter words have too many neighbours
	maxNeighbour = 4    // neighbours of a word
	minLikeness  = 0.55 // Dice coefficient of the trigrams
)

func newSpelling(words []string) *spelling {
	s := &spelling{grams: map[string][]int32{}}
	for _, w := range words {
		if !spellable(w) {
			continue
		}
		id := int32(len(s.words))
		grams := trigrams(w)
		s.words, s.lengths = append(s.words, w), append(s.lengths, uint8(len(grams)))
		for _, g := range grams {
			s.grams[g] = append(s.grams[g], id)
		}
	}
	return s
}

func spellable(w string) bool {
	if len(w) < minSpelling {
		return false
	}
	for i := range len(w) {
		if w[i] >= 0x80 {
			return false
		}
	}
	return true
}

func trigrams(w string) []string {
	w = "^" + w + "$"
	out := make([]string, 0, len(w)-2)
	for i := range len(w) - 2 {
		out = append(out, w[i:i+3])
	}
	return out
}

// neighbour is a similar word and how similar it is, 0 … 1.
type neighbour struct {
	word     string
	likeness float32
}

// near returns the most similar other words, best first.
func (s *spelling) near(word string) []neighbour {
	if !spellable(word) {
		return nil
	}
	grams := trigrams(word)
	shared := map[int32]uint8{}
	for _, g := range grams {
		for _, id := range s.grams[g] {
			shared[id]++
		}
	}
	var out []neighbour
	for id, n := range shared {
		likeness := 2 * float32(n) / float32(len(grams)+int(s.lengths[id]))
		if likeness >= minLikeness && s.words[id] != word {
			out = append(out, neighbour{s.words[id], likeness})
		}
	}
	sortBy(out, func(a, b neighbour) bool {
		return a.likeness > b.likeness || a.likeness == b.likeness && a.word < b.word
	})
	return out[:min(len(out), maxNeighbour)]
}
