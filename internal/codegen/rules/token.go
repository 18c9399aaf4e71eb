package rules

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
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
	symbol
	// ambiguous is a value with two readings, such as 1.000, 007, 'a\n' or 2026-01-15, JSON that has a member twice,
	// or a number of which a float loses digits.
	ambiguous
	space
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

const extension = `(?:json|txt|csv|md|log|yaml|yml|xml|html|py|tsv|db)`

// closingMarks has the closing quotation mark of each opening one.
var closingMarks = map[rune]string{'"': `"`, '“': "”", '‘': "’", '\'': "'", '`': "`"}

// The patterns of tokens. The group of pathPattern is the text.
var (
	pathPattern = regexp.MustCompile(`^((?:~|\.{1,2})?/[\w.\-]+(?:/[\w.\-]+)*/?` +
		`|[\w\-]+(?:/[\w.\-]+)*(?:/|\.` + extension + `))(?:$|[^\w/\-])`)
	quotedPath  = regexp.MustCompile(`^[\w./-][\w./ -]*\.` + extension + `$`) // may have spaces
	escaped     = regexp.MustCompile(`\\[ntr]`)                               // a new line, or a backslash
	datePattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(?:$|[^\w-])`)
	numberToken = regexp.MustCompile(`^(?:\d+(?:[.,]\d+)*|\.\d+)`)
	wordToken   = regexp.MustCompile(`^(?:St\.|[\pL\d_][\pL\pM\d_]*(?:['’-][\pL\pM\d_]+)*)`)
	wordStart   = regexp.MustCompile(`^[\pL_]`)
	symbolToken = regexp.MustCompile(`^(?:\*\*|//|--|\+-|[<>=!]=|\n|.)`)

	// plainNumber matches numbers with separators in the right places and without leading zeros, which a code may have.
	plainNumber = regexp.MustCompile(`^(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?$`)
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
	for at, size := 0, 0; at < len(task); at += size {
		var t token
		if size = 0; strings.IndexByte("{[", task[at]) >= 0 && notJSON < maxNotJSON {
			if t, size = jsonToken(task[at:]); size == 0 {
				notJSON++
			}
		}
		if size == 0 {
			before, _ := utf8.DecodeLastRuneInString(task[:at])
			inWord := unicode.IsLetter(before) || unicode.IsDigit(before) || before == '_'
			t, size = next(task[at:], !inWord)
		}
		if t.start, t.end = at, at+size; t.kind != space {
			out = append(out, t)
		}
	}
	return out
}

// next returns the first token of a text and its size. starts says whether a word may start here.
func next(s string, starts bool) (token, int) {
	if r, size := utf8.DecodeRuneInString(s); unicode.IsSpace(r) && r != '\n' {
		return token{kind: space}, size
	}
	if text, size := quotation(s); size > 0 && (starts || s[0] != '\'') {
		k := quoted
		if escaped.MatchString(text) {
			k = ambiguous
		}
		return token{kind: k, text: text}, size
	}
	near := s[:min(len(s), maxLiteral)]
	if m := pathPattern.FindStringSubmatch(near); starts && m != nil && len(m[0]) < maxLiteral {
		if p := strings.TrimRight(m[1], "."); strings.ContainsFunc(p, unicode.IsLetter) {
			return token{kind: path, text: p}, len(p)
		}
	}
	n := numberToken.FindString(near)
	switch {
	case datePattern.MatchString(near):
		return token{kind: ambiguous, text: s[:len(time.DateOnly)]}, len(time.DateOnly)
	case n != "" && !wordStart.MatchString(s[len(n):]):
		k := number
		if !plainNumber.MatchString(n) || dotNumber.MatchString(n) || !isExact(strings.ReplaceAll(n, ",", "")) {
			k = ambiguous
		}
		return token{kind: k, text: n}, len(n)
	default:
		if w := wordToken.FindString(s); w != "" {
			return token{kind: word, text: w, lower: strings.ToLower(strings.ReplaceAll(w, "’", "'"))}, len(w)
		}
	}
	m := symbolToken.FindString(near)
	return token{kind: symbol, text: m, lower: m}, len(m)
}

// quotation returns the text of the quotation with which s begins, and its size with the marks. The size is 0 if there
// is none that ends on the same line.
func quotation(s string) (text string, size int) {
	opening, n := utf8.DecodeRuneInString(s)
	closing, ok := closingMarks[opening]
	if !ok {
		return "", 0
	}
	line, _, _ := strings.Cut(s[n:], "\n")
	text, _, ok = strings.Cut(line, closing)
	if !ok {
		return "", 0
	}
	return text, n + len(text) + len(closing)
}

// jsonToken returns the JSON value with which a text begins, in compact form, and its size, which is 0 if there is
// none.
func jsonToken(s string) (t token, size int) {
	decoder := json.NewDecoder(strings.NewReader(s))
	var value json.RawMessage
	var compact bytes.Buffer
	if decoder.Decode(&value) != nil || json.Compact(&compact, value) != nil {
		return token{}, 0
	}
	t = token{kind: jsonText, text: compact.String()}
	if strictjson.Check(value) != nil || !hasExactNumbers(t.text) {
		t.kind = ambiguous
	}
	return t, int(decoder.InputOffset())
}

// hasExactNumbers reports whether Python holds all digits of the numbers in a JSON text.
func hasExactNumbers(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			return true // the end
		}
		if n, ok := t.(json.Number); ok && !isExact(n.String()) {
			return false
		}
	}
}

// isExact reports whether Python holds all digits of a number: it holds those of any integer, and a decimal number as a
// float.
func isExact(number string) bool {
	significant := func(n string) string {
		n, _, _ = strings.Cut(strings.ToLower(n), "e")
		return strings.Trim(strings.ReplaceAll(n, ".", ""), "-0")
	}
	v, err := strconv.ParseFloat(number, 64)
	return !strings.ContainsAny(number, ".eE") ||
		err == nil && significant(number) == significant(strconv.FormatFloat(v, 'e', -1, 64))
}

// join returns the text of tokens with one space between them.
func join(tokens []token) string {
	var texts []string
	for _, t := range tokens {
		texts = append(texts, t.text)
	}
	return strings.Join(texts, " ")
}
