package rules

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/strictjson"
)

// kind says what a token is.
type kind int

const (
	word kind = iota
	number
	quoted
	jsonText
	path
	isoDate
	symbol
	ambiguous // a value with two readings: 1.000, or JSON that has a member twice
	newline
)

// token is a piece of the task. Quotations, JSON and paths are one token each: no pattern of the grammar matches inside
// them.
type token struct {
	kind       kind
	text       string // without quotation marks
	lower      string // words and symbols in lower case; empty for values
	start, end int    // byte offsets in the task
}

// is reports whether the token is one of the symbols.
func (t token) is(symbols string) bool { return t.kind == symbol && strings.Contains(symbols, t.text) }

var (
	pathPattern = regexp.MustCompile(`^(?:(?:~|\.{1,2})?/[\w.\-]+(?:/[\w.\-]+)*` +
		`|[\w\-]+(?:/[\w.\-]+)*\.(?:json|txt|csv|md|log|yaml|yml|xml|html|py|tsv|db))(?:$|[^\w/\-])`)
	datePattern  = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(?:$|[^\w-])`)
	numberToken  = regexp.MustCompile(`^(?:\d+(?:[.,]\d+)*|\.\d+)`)
	wordToken    = regexp.MustCompile(`^(?:St\.|[\pL\d_][\pL\pM\d_]*(?:['’-][\pL\pM\d_]+)*)`)
	productToken = regexp.MustCompile(`^[1-9]\d*x\d`) // 10x10 is a product, 0x10 is not
	productRest  = regexp.MustCompile(`^\d*x\d`)      // what follows a product's first digit
	symbolToken  = regexp.MustCompile(`^(?:\*\*|//|[<>=!]=|\n|.)`)

	// plainNumber matches numbers with separators in the right places.
	plainNumber = regexp.MustCompile(`^(?:\d+|\d{1,3}(?:,\d{3})+)?(?:\.\d+)?$`)
	// dotNumber matches numbers with two readings: in 1.234, the point may separate thousands or decimals.
	dotNumber = regexp.MustCompile(`^[1-9]\d{0,2}\.\d{3}$`)
)

// Bounds of what tokenise reads ahead, so that its time is proportional to the size of the task.
const (
	maxLiteral = 500 // bytes of a path or a number
	maxNotJSON = 100 // brackets that begin no JSON; further brackets are symbols
)

// tokenise divides a task into tokens.
func tokenise(task string) []token {
	var out []token
	notJSON := 0
	for at := 0; at < len(task); {
		var t token
		size := 0
		if c := task[at]; (c == '{' || c == '[') && notJSON < maxNotJSON {
			t.kind = jsonText
			if t.text, size = jsonToken(task[at:]); size == 0 {
				notJSON++
			} else if strictjson.Check([]byte(t.text)) != nil {
				t.kind = ambiguous
			}
		}
		if size == 0 {
			t, size = next(task[at:], at == 0 || !endsInWord(task[:at]))
		}
		if size == 0 {
			_, size = utf8.DecodeRuneInString(task[at:])
			at += size
			continue
		}
		t.start, t.end = at, at+size
		out = append(out, t)
		at += size
	}
	return out
}

// endsInWord reports whether a text ends inside a word.
func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'
}

// next returns the first token of a text and its size, which is 0 for white space. starts says whether a word may start
// here.
func next(s string, starts bool) (token, int) {
	if r, _ := utf8.DecodeRuneInString(s); unicode.IsSpace(r) && r != '\n' {
		return token{}, 0
	}
	if text, size := quotation(s); size > 0 && (starts || s[0] != '\'') {
		return token{kind: quoted, text: text}, size
	}
	near := s[:min(len(s), maxLiteral)]
	if starts {
		m := pathPattern.FindString(near)
		if len(m) == maxLiteral {
			m = ""
		}
		m = strings.TrimRight(pathText(m), ".")
		if strings.ContainsFunc(m, unicode.IsLetter) {
			return token{kind: path, text: m}, len(m)
		}
	}
	if datePattern.MatchString(s) {
		return token{kind: isoDate, text: s[:10]}, 10
	}
	if n := numberToken.FindString(near); n != "" && (productToken.MatchString(near) || !startsWord(s[len(n):])) {
		if !plainNumber.MatchString(n) || dotNumber.MatchString(n) {
			return token{kind: ambiguous, text: n}, len(n)
		}
		return token{kind: number, text: n}, len(n)
	}
	if starts || !productRest.MatchString(near) {
		if w := wordToken.FindString(s); w != "" {
			return token{kind: word, text: w, lower: strings.ToLower(strings.ReplaceAll(w, "’", "'"))}, len(w)
		}
	}
	m := symbolToken.FindString(near)
	k := symbol
	if m == "\n" {
		k = newline
	}
	return token{kind: k, text: m, lower: m}, len(m)
}

// quotes are the pairs of quotation marks.
var quotes = [][2]string{{`"`, `"`}, {"“", "”"}, {"‘", "’"}, {"`", "`"}, {"'", "'"}}

// quotation returns the text of the quotation with which a line begins, and the quotation's size, which is 0 if there
// is none.
func quotation(s string) (text string, size int) {
	for _, q := range quotes {
		if rest, ok := strings.CutPrefix(s, q[0]); ok {
			line, _, _ := strings.Cut(rest, "\n")
			if text, _, ok := strings.Cut(line, q[1]); ok {
				return text, len(q[0]) + len(text) + len(q[1])
			}
		}
	}
	return "", 0
}

// pathText drops the character that pathPattern has matched after a path, if there is one.
func pathText(m string) string {
	r, size := utf8.DecodeLastRuneInString(m)
	if !endsInWord(m) && r != '.' && r != '-' {
		return m[:len(m)-size]
	}
	return m
}

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r) || r == '_'
}

// jsonToken returns the JSON value with which a text begins, in compact form, and its size, which is 0 if there is
// none.
func jsonToken(s string) (text string, size int) {
	decoder := json.NewDecoder(strings.NewReader(s))
	var value json.RawMessage
	var compact bytes.Buffer
	if decoder.Decode(&value) != nil || json.Compact(&compact, value) != nil {
		return "", 0
	}
	return compact.String(), int(decoder.InputOffset())
}

// join returns the text of tokens with one space between them.
func join(tokens []token) string {
	var texts []string
	for _, t := range tokens {
		texts = append(texts, t.text)
	}
	return strings.Join(texts, " ")
}
