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
	refers bool // it refers to the previous number, which python calls result_so_far
	simple bool // it has only short numbers, + - * / and parentheses: a calculator that uses floats is exact
	single bool // it is one number, without an operator
}

const (
	previous  = "result_so_far"
	percentOf = "percent_of"
)

// operatorWords are the words that are replaced by operators, longer ones first. The last pattern matches references to
// the previous number.
var operatorWords = []struct {
	pattern *regexp.Regexp
	symbol  string
}{
	{regexp.MustCompile(`(?i)(\d)\s*(?:%|percent)\s+of\s+`), "$1 " + percentOf + " "},
	{regexp.MustCompile(`(?i)\b(?:to the power of|raised to)\b`), " ** "},
	{regexp.MustCompile(`(?i)\bmultiplied by\b|\btimes\b`), " * "},
	{regexp.MustCompile(`(?i)\bdivided by\b`), " / "},
	{regexp.MustCompile(`(?i)\bplus\b`), " + "},
	{regexp.MustCompile(`(?i)\bminus\b`), " - "},
	{regexp.MustCompile(`(?i)\bmod(?:ulo)?\b`), " % "},
	{regexp.MustCompile(`(?i)\bsquared\b`), " ** 2"},
	{regexp.MustCompile(`(?i)\bcubed\b`), " ** 3"},
	{regexp.MustCompile(`(?i)(\d)\s*[x×]\s*(\d)`), "$1 * $2"},
	{regexp.MustCompile(`(?i)\b(?:the (?:previous |last )?(?:result|sum|product|total|answer|value|number)` +
		`|that(?: number| result)?|it|this)\b`), " " + previous + " "},
}

var (
	notDecimal = regexp.MustCompile(`(?i)\b0[xbo][0-9a-f]`) // 0x10 is not a product
	dateLike   = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})\b`)

	// -5 mod 3 may mean 1 or -2.
	negativeModulo = regexp.MustCompile(`(?:^|[-+*/(%×÷−])\s*[-−]\s*[\d.,]+\s*%|%\s*[-−]`)

	// "-2 squared" may mean 4 or -4.
	negativePower = regexp.MustCompile(`(?i)(?:^|[-+*/(×÷−]|\bby\b|\btimes\b|\bplus\b|\bminus\b)` +
		`\s*(?:[-−]|\bminus\b)\s*[\d.,]+\s+(?:squared|to the power|raised)`)

	// arithNumber matches a number without an exponent and without a trailing point.
	arithNumber = regexp.MustCompile(`^(?:[\d,]*\.?\d+)$`)
)

const (
	maxDepth    = 50 // of parentheses and signs
	maxPower    = 1000.0
	floatDigits = 15 // a float represents every whole number with this many digits exactly
)

// arithGrammar is the grammar of a task's arithmetic, in which operatorWords are replaced.
var arithGrammar = arith.Grammar{
	Sum: []string{"+", "-", "−"}, Product: []string{"*", "×", "/", "÷", "%", percentOf}, Power: []string{"**", "^"},
	Sign: []string{"-", "−"}, Names: []string{previous}, Thousands: true, MaxNesting: 3 * maxDepth,
}

// parseArithmetic reads a text that is one arithmetic expression and nothing else.
func parseArithmetic(s string) (expression, bool) {
	s = digits(strings.TrimSpace(s))
	if notDecimal.MatchString(s) || dateLike.MatchString(s) || negativePower.MatchString(s) {
		return expression{}, false
	}
	for _, w := range operatorWords {
		s = w.pattern.ReplaceAllString(s, w.symbol)
	}
	if negativeModulo.MatchString(s) {
		return expression{}, false
	}
	n, err := arithGrammar.Parse(s)
	if err != nil {
		return expression{}, false
	}
	w := arithWriter{simple: true}
	text, ok := w.write(n, 0)
	return expression{
		python: text, refers: w.refers, single: n.Kind == arith.Number || n.Kind == arith.Name,
		simple: w.simple && !w.refers && w.digits <= floatDigits,
	}, ok
}

var (
	smallNumbers = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen " +
		"fourteen fifteen sixteen seventeen eighteen nineteen")
	tens         = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
	numberInWord = regexp.MustCompile(`(?i)\b(?:(` + strings.Join(tens[2:], "|") + `)(?:-(` +
		strings.Join(smallNumbers[1:10], "|") + `))?|(` + strings.Join(smallNumbers, "|") + `))\b`)
)

// digits replaces numbers in words by digits, up to ninety-nine. Larger ones stay words, so they are not understood.
func digits(s string) string {
	return numberInWord.ReplaceAllStringFunc(s, func(word string) string {
		m := numberInWord.FindStringSubmatch(strings.ToLower(word))
		n := max(0, slices.Index(smallNumbers, m[2]+m[3])) + 10*max(0, slices.Index(tens, m[1]))
		return strconv.Itoa(n)
	})
}

// arithWriter writes an expression as Python.
type arithWriter struct {
	simple, refers bool
	digits         int // the digits of all numbers together, which bound the digits of their product
}

// write returns an expression as Python. It returns false if the expression can be grouped in two ways, is nested too
// deeply, or contains a number with an exponent or a trailing point.
func (w *arithWriter) write(n *arith.Node, depth int) (string, bool) {
	switch {
	case depth > maxDepth:
		return "", false
	case n.Kind == arith.Number:
		text := number(n.Text)
		w.digits += len(text)
		return text, arithNumber.MatchString(n.Text)
	case n.Kind == arith.Name:
		w.refers = true
		return n.Text, true
	case n.Kind == arith.Sign:
		text, ok := w.write(n.Args[0], depth+1)
		return "(-" + text + ")", ok // -2 ** 2 is -4
	case n.Kind == arith.Group:
		text, ok := w.write(n.Args[0], depth+1)
		if text == previous || numeral.MatchString(text) {
			return text, ok
		}
		return "(" + text + ")", ok
	case n.Kind == arith.Binary && unambiguous(n):
		return w.binary(n, depth)
	}
	return "", false
}

func (w *arithWriter) binary(n *arith.Node, depth int) (string, bool) {
	left, ok := w.write(n.Args[0], depth)
	if !ok {
		return "", false
	}
	right, ok := w.write(n.Args[1], depth)
	switch n.Text {
	case percentOf:
		return left + " * " + right + " / 100", ok
	case "**", "^":
		w.simple = false
		exponent, err := strconv.ParseFloat(strings.Trim(right, "()-"), 64)
		return left + " ** " + right, ok && (err != nil || exponent <= maxPower)
	case "%":
		w.simple = false
	}
	symbol := strings.NewReplacer("−", "-", "×", "*", "÷", "/").Replace(n.Text)
	return left + " " + symbol + " " + right, ok
}

// unambiguous reports whether an operator can be grouped in only one way. It is not unambiguous in 2 ** 3 ** 2, in
// "200 / 10% of 50", and in a product with % both as modulo and as percent.
func unambiguous(n *arith.Node) bool {
	isPower := func(n *arith.Node) bool { return n.Kind == arith.Binary && slices.Contains(arithGrammar.Power, n.Text) }
	if isPower(n) {
		return !isPower(n.Args[1])
	}
	percent, modulo := false, false
	for slices.Contains(arithGrammar.Product, n.Text) && n.Kind == arith.Binary {
		left := n.Args[0]
		if n.Text == percentOf && left.Kind == arith.Binary && (left.Text == "/" || left.Text == "÷") {
			return false
		}
		percent, modulo = percent || n.Text == percentOf, modulo || n.Text == "%"
		n = left
	}
	return !percent || !modulo
}

// number returns a numeral as Python, without thousands separators and leading zeros.
func number(s string) string {
	s = strings.TrimLeft(strings.ReplaceAll(s, ",", ""), "0")
	if s == "" || s[0] == '.' {
		s = "0" + s
	}
	return s
}
