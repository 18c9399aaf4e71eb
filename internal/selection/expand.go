package selection

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

//go:embed synonyms.txt
var synonymText string

// synonyms maps the stem of a word in a task to stems of words in tools. It is parsed at its first use.
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

// spelling finds the words of a vocabulary that share most of their trigrams with a word. It helps with typing errors,
// compounds ("wordcloud"), and forms that have different stems.
type spelling struct {
	words   []string
	grams   map[string][]int32 // the words that contain a trigram, as positions in words
	lengths []int              // the number of trigrams of each word
}

const (
	minSpelling   = 4    // characters; shorter words have too many neighbours
	maxNeighbours = 4    // neighbours of one word
	minSimilarity = 0.55 // the Dice coefficient of the trigrams
)

func newSpelling(words []string) *spelling {
	s := &spelling{grams: map[string][]int32{}}
	for _, w := range words {
		if !spellable(w) {
			continue
		}
		id := int32(len(s.words))
		grams := trigrams(w)
		s.words, s.lengths = append(s.words, w), append(s.lengths, len(grams))
		for _, g := range grams {
			s.grams[g] = append(s.grams[g], id)
		}
	}
	return s
}

// spellable reports whether a word can have neighbours: it must be long enough, and ASCII.
func spellable(w string) bool {
	return len(w) >= minSpelling && strings.IndexFunc(w, func(r rune) bool { return r >= 0x80 }) < 0
}

// trigrams returns the distinct trigrams of a word.
func trigrams(w string) []string {
	w = "^" + w + "$"
	out := make([]string, 0, len(w)-2)
	for i := range len(w) - 2 {
		out = append(out, w[i:i+3])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// neighbour is a similar word. The similarity is between 0 and 1.
type neighbour struct {
	word       string
	similarity float32
}

// neighbours returns the most similar other words, best first. An opposite is no neighbour: "unmount" is not a
// misspelt "mount".
func (s *spelling) neighbours(word string) []neighbour {
	if !spellable(word) {
		return nil
	}
	grams := trigrams(word)
	shared := map[int32]int{}
	for _, g := range grams {
		for _, id := range s.grams[g] {
			shared[id]++
		}
	}
	var out []neighbour
	for id, n := range shared {
		similarity := 2 * float32(n) / float32(len(grams)+s.lengths[id])
		if similarity >= minSimilarity && s.words[id] != word && !opposed(word, s.words[id]) {
			out = append(out, neighbour{s.words[id], similarity})
		}
	}
	slices.SortFunc(out, func(a, b neighbour) int {
		return cmp.Or(cmp.Compare(b.similarity, a.similarity), cmp.Compare(a.word, b.word))
	})
	return out[:min(len(out), maxNeighbours)]
}
