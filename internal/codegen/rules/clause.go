package rules

import (
	"regexp"
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
	tokens   []token // with the JSON block or the bullet list that follows the request, as one token
	text     string  // as written
	sentence int
	fields   []string // the members of the bullet list, in JSON
}

// listNumber matches the number of a list's item: "1." or "2)".
var listNumber = regexp.MustCompile(`(?m)^([ \t]*)\d{1,2}[.)][ \t]*(\pL)`)

// withoutNumbers returns a task without the numbers of its list items.
func withoutNumbers(task string) string { return listNumber.ReplaceAllString(task, "$1$2") }

// split divides a task into clauses: at the ends of sentences and lines, at "then", and at "and" or a comma before a
// verb, never inside parentheses.
func split(task string) (out []clause) {
	sentences := 0
	for _, line := range divide(tokenise(task), func(t []token, i int) bool { return t[i].is("\n") }) {
		item := len(line) > 1 && line[0].is("-*•") && line[1].start > line[0].end
		if item && line[1].kind == number {
			line[0].kind, line[0].lower = ambiguous, "" // an item, or a negative number?
		} else if item {
			line = line[1:]
		}
		last := len(out) - 1
		switch isField := item && len(line) > 2 && line[1].is(":"); {
		case last >= 0 && len(line) == 1 && line[0].kind == jsonText:
			out[last].tokens = append(out[last].tokens, line[0])
		case last >= 0 && isField && (line[0].kind == word || line[0].kind == quoted):
			out[last].addField(line[0].text, line[2:])
		default:
			for _, sentence := range divide(line, endsSentence) {
				sentences++
				for _, c := range requests(sentence) {
					c.sentence = sentences
					c.text = text.OneLine(task[c.tokens[0].start:c.tokens[len(c.tokens)-1].end])
					out = append(out, c)
				}
			}
		}
	}
	for i, c := range out {
		if len(c.fields) > 0 {
			object := "{" + strings.Join(c.fields, ", ") + "}"
			folded, _ := jsonToken(strings.ToLower(object)) // ambiguous if names differ only in case
			out[i].tokens = append(c.tokens, token{kind: folded.kind, text: object})
		}
	}
	return out
}

// addField adds an item "name: value" of a bullet list.
func (c *clause) addField(name string, t []token) {
	value, ok := theGrammar().readJSON(t)
	if !ok {
		c.tokens = append(c.tokens, token{kind: ambiguous, text: join(t)})
	}
	c.fields = append(c.fields, quote(name)+": "+value)
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

// endsSentence reports whether a token is punctuation before white space, before more punctuation or at the end. The
// mark of 5! may be a factorial.
func endsSentence(t []token, i int) bool {
	const marks = ".;!?"
	factorial := t[i].is("!") && i > 0 && t[i-1].end == t[i].start && (t[i-1].kind == number || t[i-1].is(")"))
	return t[i].is(marks) && !factorial && (i+1 == len(t) || t[i+1].start > t[i].end || t[i+1].is(marks))
}

// requests divides a sentence into clauses: at "then", and at "and" or a comma before a verb.
func requests(t []token) (out []clause) {
	for _, part := range divideAtConnectors(t, func(next int, then bool) bool {
		return next < len(t) && (then || theGrammar().has("verbs", t[next]))
	}) {
		if part = tidy(part); len(part) > 0 {
			out = append(out, clause{tokens: part})
		}
	}
	return out
}

// divideAtConnectors divides tokens at each connector for which isEnd is true, never inside parentheses.
func divideAtConnectors(t []token, isEnd func(next int, then bool) bool) (out [][]token) {
	from, depth := 0, 0
	for i := range t {
		if t[i].is("(") {
			depth++
		} else if t[i].is(")") {
			depth--
		}
		if n, then := connector(t[i:]); n > 0 && i >= from && depth <= 0 && isEnd(i+n, then) {
			out, from = append(out, t[from:i]), i+n
		}
	}
	return append(out, t[from:])
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
	t = slices.DeleteFunc(slices.Clone(t), func(t token) bool { return g.has("ignored", t) })
	for n := -1; n != len(t); {
		n = len(t)
		_, polite := g.prefix("politeness", t)
		if t = t[polite:]; len(t) > 0 && t[len(t)-1].is(",:") {
			t = t[:len(t)-1]
		}
		if len(t) > 0 && t[0].is(",") {
			t = t[1:]
		}
	}
	return t
}

// Clauses returns the requests in a task, as written, at most 100. A search for its tools finds more with one query for
// each request than with the whole task.
func Clauses(task string) []string {
	var out []string
	for _, c := range split(withoutNumbers(task[:min(len(task), maxTask)])) {
		out = append(out, c.text)
	}
	return out[:min(len(out), maxClauses)]
}
