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
// "Stop following" has the stem of "unfollow", too.
func stemsOf(text string, stem func(string) string) map[string]bool {
	const reach = 4 // words from a verb to its particle
	words, out := terms.Words(text), map[string]bool{}
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "un"); ok { // the stem of "unarchive" does not end with that of "archive"
			out["un"+stem(rest)] = true
		}
		if i > 0 && stops(words[i-1]) {
			out["un"+stem(w)] = true
		}
		out[stem(w)] = true
		for _, next := range words[i+1 : min(len(words), i+1+reach)] {
			if !slices.Contains(particles, next) {
				continue
			}
			if verb := stem(w) + next; oppositeTable()[verb] != nil {
				out[verb] = true
			}
		}
	}
	return out
}

func stops(word string) bool { return word == "stop" || word == "quit" || word == "cease" }

// requested returns the stems of the verbs in a query, without the participles, which may say in which state a thing
// is: "restore an archived thread" does not request to archive it, nor does "stop following" request to follow.
func requested(words []string) map[string]bool {
	var verbs []string
	for i, w := range words {
		stopped := strings.HasSuffix(w, "ing") && i > 0 && stops(words[i-1])
		if !strings.HasSuffix(w, "ed") && !stopped {
			verbs = append(verbs, w)
		}
	}
	return stemsOf(strings.Join(verbs, " "), terms.Stem)
}

// opposition says that a tool does the opposite of a query that asks for something else than what the tool does.
type opposition struct {
	tool int32
	does string // a stem of the tool's name
}

// findOppositions returns the tools by the stems that mean the opposite of a word in their names. If a tool has such a
// stem itself, it is not listed for it. One that ends something, such as end_recording, is not listed for "unrecord".
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
		verbs := stemsOf(tools[i].Name, stem)
		ends := slices.ContainsFunc(oppositeTable()["start"], func(s string) bool { return verbs[s] })
		for does := range verbs {
			for _, asked := range opposites(does) {
				if undoes := ends && asked == "un"+does; !own[asked] && !undoes {
					out[asked] = append(out[asked], opposition{int32(i), does})
				}
			}
		}
	}
	return out
}

// opposing returns the tools that do the opposite of what a query requests.
func (s *Index) opposing(sentence string) map[int32]bool {
	sentence = terms.Literals(sentence)
	verbs, out := requested(terms.Words(sentence)), map[int32]bool{}
	for word := range stemsOf(sentence, terms.Stem) {
		for _, o := range s.oppositions[word] {
			if !verbs[o.does] {
				out[o.tool] = true
			}
		}
	}
	return out
}
