package rules

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/arith"
)

// expression is an arithmetic expression in Python.
type expression struct {
	python string
	refers bool // to the last number
	single bool // one number, perhaps with a sign, and nothing else
	ok     bool
	// simple says that a calculator that uses floats gives the nearest float: the expression has short whole numbers,
	// + - * and parentheses.
	simple bool
}

const (
	previous    = "result_so_far"
	percentOf   = "percent_of"
	maxDepth    = 50 // of parentheses and signs
	maxPower    = 1000
	floatDigits = 15 // a float holds every whole number of at most this many digits
)

// arithGrammar is the arithmetic of tasks after their words are replaced by operators.
var arithGrammar = arith.Grammar{
	Sum: []string{"+", "-"}, Product: []string{"*", "/", percentOf}, Power: []string{"**"},
	Sign: []string{"-"}, Names: []string{previous}, Thousands: true, MaxNesting: 50,
}

var (
	// dateLike matches a date, which is not a calculation.
	dateLike = regexp.MustCompile(`\b(?:\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})|(?:1[789]|20)\d\d(?:[/-]\d{1,2}){2})\b`)
	// onePercent matches an expression with a percentage that all readers read alike. They do not for "50% of 80 + 3".
	onePercent = regexp.MustCompile(`^(?:[^p]*[+-] )?[\w.,]+ percent_of [\w.,]+ $`)
	notDigit   = regexp.MustCompile(`[^\d.]`)
	isRounded  = regexp.MustCompile(`[/.]|\*\*`) // its value may be a float, or too large
	operand    = regexp.MustCompile(`[\w.]+`)
)

// parseArithmetic reads tokens that are one arithmetic expression and nothing else.
func (w *writer) parseArithmetic(t []token) (e expression) {
	var text strings.Builder
	for i := 0; i < len(t); {
		py, size := w.grammar.prefix("operator", t[i:])
		if _, ok := readReference(w, t[i:i+1]); ok {
			if e.refers {
				return e // they may mean two numbers
			}
			py, size, e.refers = previous, 1, true
		} else if size == 0 {
			py, size = w.grammar.digits(t[i]), 1
			if !plainNumber.MatchString(py) || t[i].kind != word && t[i].kind != number {
				return e
			}
		}
		text.WriteString(py + " ")
		i += size
	}
	n, err := arithGrammar.Parse(text.String())
	if err != nil || strings.Contains(text.String(), percentOf) && !onePercent.MatchString(text.String()) {
		return e
	}
	e.python, e.ok = pythonOf(n)
	for n.Kind == arith.Sign || n.Kind == arith.Group {
		n = n.Args[0]
	}
	e.single = n.Kind == arith.Number || n.Kind == arith.Constant
	e.simple = !e.refers && len(notDigit.ReplaceAllString(e.python, "")) <= floatDigits &&
		!isRounded.MatchString(e.python)
	e.python = strings.ReplaceAll(e.python, previous, w.vars["number"])
	return e
}

// digits returns a number word up to ninety-nine in digits, and the text of any other token.
func (g *grammar) digits(t token) string {
	if n, ok := g.phrase("number-word", []token{t}); ok {
		return n
	}
	return t.text
}

// pythonOf returns an expression in Python. It returns false for a number that is too large, for a power of a
// power, and for "-2 squared", which is 4 for some and -4 for others.
func pythonOf(n *arith.Node) (string, bool) {
	args, ok := []string{""}, true
	for _, arg := range n.Args {
		text, understood := pythonOf(arg)
		args, ok = append(args, text), ok && understood
	}
	first, last := args[min(1, len(n.Args))], args[len(n.Args)]
	switch n.Kind { //nolint:exhaustive // the rest are operators
	case arith.Number:
		last = strings.ReplaceAll(n.Text, ",", "")
		return last, ok && len(last) <= maxDigits
	case arith.Constant:
		return n.Text, ok
	case arith.Sign:
		return "(-" + last + ")", ok && n.Args[0].Text != "**"
	case arith.Group:
		if last == previous || numeral.MatchString(last) || n.Args[0].Kind == arith.Group {
			return last, ok
		}
		return "(" + last + ")", ok
	}
	switch n.Text {
	case percentOf:
		return first + " * " + last + " / 100", ok
	case "**":
		exponent, err := strconv.ParseFloat(strings.Trim(last, "()-"), 64)
		ok = ok && err == nil && exponent <= maxPower && !strings.Contains(first, "**")
	}
	return first + " " + n.Text + " " + last, ok
}

func readExpression(w *writer, t []token) (value, bool) {
	e := w.parseArithmetic(t)
	return value{py: e.python}, e.ok && !dateLike.MatchString(w.request.Task[t[0].start:t[len(t)-1].end])
}

// readOperand reads one operand to which any operator can be applied as it stands: a number, "it", or an expression in
// parentheses.
func readOperand(w *writer, t []token) (value, bool) {
	v, ok := readExpression(w, t)
	enclosed := t[0].is("(") && slices.IndexFunc(t, func(t token) bool { return t.is(")") }) == len(t)-1
	return v, ok && (w.parseArithmetic(t).single || enclosed)
}

// readReference reads a word that means the last number: "it", "the result", or "the sum" after a sum. The number is not
// known any more if something else has been found or changed since, which the word may mean (see writer.forget).
func readReference(w *writer, t []token) (value, bool) {
	kind, ok := w.grammar.phrase("reference", t)
	return value{py: w.vars[kind]}, ok && w.vars[kind] != "" && w.vars[kind] == w.vars["number"]
}
