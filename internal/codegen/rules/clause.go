package rules

import (
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

const (
	maxTask    = 20_000 // bytes
	maxClauses = 100
)

// clause is one request of a task.
type clause struct {
	tokens   []token
	text     string // as written
	sentence int
	then     bool    // "then" precedes it
	fields   []field // of the bullet list that follows it
	data     *token  // the JSON block that follows it
}

// field is an item "name: value" of a bullet list.
type field struct {
	name  string
	value []token
}

// repeats reports whether an earlier field has the name of the field i.
func (c clause) repeats(i int) bool {
	return slices.ContainsFunc(c.fields[:i], func(f field) bool { return f.name == c.fields[i].name })
}

// split divides a task into clauses: at the ends of sentences and lines, at "then", and at "and" or a comma before a
// verb, never inside parentheses.
func split(task string) []clause {
	s := splitter{task: task}
	for _, line := range divide(tokenise(task), func(t []token, i int) bool { return t[i].kind == newline }) {
		item := len(line) > 1 && line[0].is("-*•") && line[1].start > line[0].end
		if item && line[1].kind == number {
			line[0].kind, line[0].lower = ambiguous, "" // an item, or a negative number?
		} else if item {
			line = line[1:]
		}
		last := len(s.out) - 1
		switch isField := item && len(line) > 2 && line[1].is(":"); {
		case last >= 0 && len(line) == 1 && line[0].kind == jsonText:
			s.out[last].data = &line[0]
		case last >= 0 && isField && (line[0].kind == word || line[0].kind == quoted):
			s.out[last].fields = append(s.out[last].fields, field{line[0].text, line[2:]})
		default:
			for _, sentence := range divide(withoutOrdinal(line), endsSentence) {
				s.sentence++
				s.split(sentence)
			}
		}
	}
	return s.out
}

// divide splits tokens at each token for which isEnd is true. It drops these tokens and empty parts.
func divide(t []token, isEnd func(t []token, i int) bool) (out [][]token) {
	from := 0
	for i := range t {
		if isEnd(t, i) {
			out, from = append(out, t[from:i]), i+1
		}
	}
	return slices.DeleteFunc(append(out, t[from:]), func(t []token) bool { return len(t) == 0 })
}

// endsSentence reports whether a token is punctuation before white space, before more punctuation or at the end.
func endsSentence(t []token, i int) bool {
	const marks = ".;!?"
	return t[i].is(marks) && (i+1 == len(t) || t[i+1].start > t[i].end || t[i+1].is(marks))
}

// withoutOrdinal drops the number of a list's item: "1.", "(2)", "3)".
func withoutOrdinal(line []token) []token {
	rest := line
	if len(rest) > 2 && rest[0].is("(") && rest[2].is(")") {
		rest = rest[1:]
	}
	if len(rest) > 2 && rest[0].kind == number && len(rest[0].text) <= 2 && rest[1].is(".)") && rest[2].kind == word {
		return rest[2:]
	}
	return line
}

type splitter struct {
	task     string
	out      []clause
	sentence int
}

// split adds the clauses of a sentence.
func (s *splitter) split(t []token) {
	from, depth, then := 0, 0, false
	for i := 0; i < len(t); i++ {
		if t[i].is("(") {
			depth++
		} else if t[i].is(")") {
			depth--
		}
		n, joined := connector(t[i:])
		if n == 0 || depth > 0 || i+n >= len(t) || !joined && !theGrammar().sets["verbs"][t[i+n].lower] {
			continue
		}
		s.add(t[from:i], then)
		from, then, i = i+n, joined, i+n-1
	}
	s.add(t[from:], then)
}

func (s *splitter) add(t []token, then bool) {
	if t = tidy(t); len(t) > 0 {
		written := text.OneLine(s.task[t[0].start:t[len(t)-1].end])
		s.out = append(s.out, clause{tokens: t, text: written, sentence: s.sentence, then: then})
	}
}

// connector returns the number of tokens in the connector with which t begins, such as "and", ", then" or ", and then",
// and whether it contains "then". The number is 0 if t begins with no connector.
func connector(t []token) (n int, then bool) {
	for _, w := range []string{",", "and", "then", ","} {
		if n < len(t) && t[n].lower == w && (w != "," || n == 0 || then) {
			n++
			then = then || w == "then"
		}
	}
	return n, then
}

// tidy drops words without meaning for the rules, politeness, and punctuation at the ends of a clause.
func tidy(t []token) []token {
	g := theGrammar()
	var kept []token
	for i, word := range t {
		ofFile := g.sets["possessive"][word.lower] && i+1 < len(t) && t[i+1].kind == path // "my file.txt" may be a name
		if ofFile || !g.sets["ignored"][word.lower] {
			kept = append(kept, word)
		}
	}
	t = kept
	for n := -1; n != len(t); {
		n = len(t)
		for p := range g.phrases["politeness"] {
			if words := strings.Fields(p); startsWith(t, words) {
				t = t[len(words):]
			}
		}
		for p := range g.phrases["thanks"] {
			if at := len(t) - len(strings.Fields(p)); at > 0 && startsWith(t[at:], strings.Fields(p)) {
				t = t[:at]
			}
		}
		if len(t) > 0 && t[len(t)-1].is(",:") {
			t = t[:len(t)-1]
		}
		if len(t) > 0 && t[0].is(",") {
			t = t[1:]
		}
	}
	return t
}

func startsWith(t []token, words []string) bool {
	return len(t) >= len(words) &&
		slices.EqualFunc(t[:len(words)], words, func(t token, w string) bool { return t.lower == w })
}

// Clauses returns the requests in a task, as written, at most 100. A search for its tools finds more with one query for
// each request than with the whole task.
func Clauses(task string) []string {
	var out []string
	for _, c := range split(task[:min(len(task), maxTask)]) {
		out = append(out, c.text)
	}
	return out[:min(len(out), maxClauses)]
}
