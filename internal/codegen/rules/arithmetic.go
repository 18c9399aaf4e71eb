package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/arith"
)

// expression is an arithmetic expression in Python.
type expression struct {
	python string
	refers bool // to the last number
	single bool // one number, perhaps with a sign, and nothing else
	// simple says that a calculator that uses floats gives the nearest float: the expression has short whole numbers,
	// + - * and parentheses.
	simple bool
	ok     bool
}

const (
	previous    = "result_so_far"
	percentOf   = "percent_of"
	floatDigits = 15 // a float holds every whole number of at most this many digits
)

// arithGrammar is the arithmetic of tasks after their words are replaced by operators.
var arithGrammar = arith.Grammar{
	Sum: []string{"+", "-"}, Product: []string{"*", "/", percentOf}, Power: []string{"**", "^^", "^"},
	Sign: []string{"-"}, Names: []string{previous}, Thousands: true, MaxNesting: 50,
}

// readOneWay has, by operator, the pattern of the expressions with it that all readers read alike. They do not agree
// about "50% of 80 + 3", and "-2 squared" is 4 for some and -4 for others, as "9 / 3 squared" is 1 or 9: so nothing may
// stand before the base of a power in words (^ and ^^). "2 to the power of 3 + 1" may be 16. The patterns limit the
// exponent, and so the time to calculate a power.
var readOneWay = map[string]*regexp.Regexp{
	percentOf: regexp.MustCompile(`^(?:[^p]*[+-] )?[\w.,]+ percent_of [\w.,]+ $`),
	"**":      regexp.MustCompile(`^(?:(?:[^-*^]|\* )*|\( - \S+ \)) \*\* \d{1,3}(?:\.\d+)? (?:[^*^]|\* )*$`),
	"^":       regexp.MustCompile(`^(?:[^^]*\( )?(?:[\w.,]+|\( [^()^]* \)) \^\^? \d{1,3}(?:\.\d+)? [^^]*$`),
	"^^":      regexp.MustCompile(`\^\^ [\d.]+ (?:\) .*)?$`),
}

var (
	// dateLike matches a date, which is not a calculation.
	dateLike  = regexp.MustCompile(`\b(?:\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})|(?:1[789]|20)\d\d(?:[/-]\d{1,2}){2})\b`)
	notDigit  = regexp.MustCompile(`[^\d.]`)
	isSingle  = regexp.MustCompile(`^[-( ]*[\w.,]+[ )]*$`)
	isRounded = regexp.MustCompile(`[/.]|\*\*`) // its value may be a float, or too large
	operand   = regexp.MustCompile(`[\w.]+`)
	toPython  = strings.NewReplacer(",", "", "( ", "(", " )", ")", percentOf, "*", "^^", "**", "^", "**")
	enclosed  = regexp.MustCompile(`\(([\w.]+)\)`)
)

// parseArithmetic reads tokens that are one arithmetic expression and nothing else.
func (w *writer) parseArithmetic(t []token) (e expression) {
	var b strings.Builder
	for i := 0; i < len(t); {
		py, size := w.grammar.prefix("operator", t[i:])
		if _, ok := readReference(w, t[i:i+1]); ok {
			if e.refers {
				return e // they may mean two numbers
			}
			py, size, e.refers = previous, 1, true
		} else if size == 0 {
			if py, size = t[i].text, 1; t[i].kind != number || len(py) > maxDigits {
				return e
			}
		}
		b.WriteString(py + " ")
		i += size
	}
	text := b.String()
	for operator, pattern := range readOneWay {
		if strings.Contains(text, operator) && !pattern.MatchString(text) {
			return e
		}
	}
	_, err := arithGrammar.Parse(text)
	e.python = toPython.Replace(strings.TrimSpace(text))
	e.python = enclosed.ReplaceAllString(e.python, "$1")
	if strings.Contains(text, percentOf) {
		e.python += " / 100"
	}
	e.ok, e.single = err == nil, isSingle.MatchString(text)
	e.simple = !e.refers && len(notDigit.ReplaceAllString(e.python, "")) <= floatDigits &&
		!isRounded.MatchString(e.python)
	e.python = strings.ReplaceAll(e.python, previous, w.vars["number"])
	return e
}

// readExpression reads an arithmetic expression.
func readExpression(w *writer, t []token) (value, bool) {
	e := w.parseArithmetic(t)
	return value{py: e.python}, e.ok && !dateLike.MatchString(w.request.Task[t[0].start:t[len(t)-1].end])
}

// readOperand reads one operand to which any operator can be applied as it stands: a number, "it", or an expression in
// parentheses.
func readOperand(w *writer, t []token) (value, bool) {
	v, ok := readExpression(w, t)
	group := t[0].is("(") && slices.IndexFunc(t, func(t token) bool { return t.is(")") }) == len(t)-1
	return v, ok && (w.parseArithmetic(t).single || group)
}

// readReference reads a word that means the last number: "it", "the result", or "the sum" after a sum. The number is
// not known any more if something else has been found or changed since, which the word may mean (see writer.forget).
func readReference(w *writer, t []token) (value, bool) {
	kind, ok := w.grammar.phrase("reference", t)
	return value{py: w.vars[kind]}, ok && w.vars[kind] != "" && w.vars[kind] == w.vars["number"]
}
