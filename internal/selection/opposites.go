package selection

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/selection/terms"
)

//go:embed opposites.txt
var oppositeText string

// oppositeTable maps the stem of a word to the stems of its opposites. It is parsed at its first use.
var oppositeTable = sync.OnceValue(func() map[string][]string {
	table := parseSynonyms(oppositeText)
	for word, others := range parseSynonyms(oppositeText) {
		for _, other := range others {
			table[other] = append(table[other], word)
		}
	}
	return table
})

// opposites returns the stems that mean the opposite of a stem.
func opposites(stem string) []string {
	if rest, ok := strings.CutPrefix(stem, "un"); ok && len(rest) > 2 {
		return append(slices.Clone(oppositeTable()[stem]), rest)
	}
	return append(slices.Clone(oppositeTable()[stem]), "un"+stem)
}

// opposed reports whether one of two stems is the other with a prefix that inverts it, or they are opposites.
func opposed(a, b string) bool {
	for _, prefix := range []string{"un", "dis", "de"} {
		if a == prefix+b || b == prefix+a {
			return true
		}
	}
	return slices.Contains(oppositeTable()[a], b)
}

// particles follow a verb, perhaps after its object, as in "log the user out".
var particles = []string{"in", "out", "on", "off", "up", "down"}

// stemsOf returns the stems of a text, with the verbs and their particles joined that are in the table of opposites.
func stemsOf(text string, stem func(string) string) map[string]bool {
	const reach = 4 // words from a verb to its particle
	words, out := terms.Words(text), map[string]bool{}
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "un"); ok { // the stem of "unarchive" does not end with that of "archive"
			out["un"+stem(rest)] = true
		}
		out[stem(w)] = true
		for _, next := range words[i+1 : min(len(words), i+1+reach)] {
			if slices.Contains(particles, next) && oppositeTable()[w+next] != nil {
				out[w+next] = true
			}
		}
	}
	return out
}

// opposition says that a tool does the opposite of a query that asks for something else than what the tool does.
type opposition struct {
	tool int32
	does string // a stem of the tool's name
}

// findOppositions returns the tools by the stems that mean the opposite of a word in their names. If a tool has such a
// stem itself, it is not listed for it.
func findOppositions(tools []Tool) map[string][]opposition {
	stems := map[string]string{}
	stem := func(word string) string {
		s, ok := stems[word]
		if !ok {
			s = terms.Stem(word)
			stems[word] = s
		}
		return s
	}
	out := map[string][]opposition{}
	for i := range tools {
		own := stemsOf(tools[i].Name+" "+tools[i].Description, stem)
		for does := range stemsOf(tools[i].Name, stem) {
			for _, asked := range opposites(does) {
				if !own[asked] {
					out[asked] = append(out[asked], opposition{int32(i), does})
				}
			}
		}
	}
	return out
}

// opposing returns the tools that do the opposite of what a query requests.
func (s *Index) opposing(sentence string) map[int32]bool {
	asked, out := stemsOf(terms.Literals(sentence), terms.Stem), map[int32]bool{}
	for word := range asked {
		for _, o := range s.oppositions[word] {
			if !asked[o.does] {
				out[o.tool] = true
			}
		}
	}
	return out
}
