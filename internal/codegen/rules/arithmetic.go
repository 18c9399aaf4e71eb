package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/arith"
)

// expression is an arithmetic expression in Python.
type expression struct {
	python string
	refers string // the words that refer to the last number
	kind   string // sum, product or empty
	single bool   // one number, perhaps with a sign, and nothing else
	ok     bool
	// simple says that a calculator that uses floats gives the nearest float: the expression has short whole numbers,
	// + - * and parentheses, or one division.
	simple bool
}

const (
	previous    = "result_so_far"
	percentOf   = "percent_of"
	wordPower   = "to_the_power" // "-2 squared" is 4 for some and -4 for others
	maxDepth    = 50             // of parentheses and signs
	maxPower    = 1000
	floatDigits = 15 // a float holds every whole number of at most this many digits
)

// arithGrammar is the arithmetic of tasks after their words are replaced by operators.
var arithGrammar = arith.Grammar{
	Sum: []string{"+", "-"}, Product: []string{"*", "/", "%", percentOf}, Power: []string{"**", "^", wordPower},
	Sign: []string{"-"}, Names: []string{previous}, Thousands: true, MaxNesting: 3 * maxDepth,
}

var (
	// dateLike matches a date, which is not a calculation.
	dateLike = regexp.MustCompile(`\b(?:\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})|(?:1[789]|20)\d\d(?:[/-]\d{1,2}){2})\b`)
	// arithNumber matches a number without an exponent and without a point at its end.
	arithNumber = regexp.MustCompile(`^[\d,]*\.?\d+$`)
	notDigit    = regexp.MustCompile(`[^\d.]`)
	isRounded   = regexp.MustCompile(`[/%.]|\*\*`) // its value may be a float, or too large
	quotient    = regexp.MustCompile(`^\d+ / \d+$`)
	operand     = regexp.MustCompile(`[\w.]+`)
	exponents   = regexp.MustCompile(`\*\* \(?-?([\w.]+)`)
)

// parseArithmetic reads tokens that are one arithmetic expression and nothing else.
func (w *writer) parseArithmetic(t []token) (e expression) {
	var text strings.Builder
	for i := 0; i < len(t); {
		py, size := w.grammar.prefix("operator", t[i:])
		isReference := func(n int) bool { _, ok := readReference(w, t[i:i+n]); return ok }
		if n := longest(min(2, len(t)-i), isReference); n > 0 {
			py, size = previous+" ", n
			words := strings.ToLower(join(t[i : i+n]))
			if e.refers = cmp.Or(e.refers, words); e.refers != words {
				return e // they may mean two numbers
			}
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
	if err != nil {
		return e
	}
	e.python, e.ok = pythonOf(n, 0)
	e.kind = map[string]string{"+": "sum", "*": "product"}[n.Text]
	for n.Kind == arith.Sign || n.Kind == arith.Group {
		n = n.Args[0]
	}
	e.single = n.Kind == arith.Number || n.Kind == arith.Constant
	e.simple = e.refers == "" && len(notDigit.ReplaceAllString(e.python, "")) <= floatDigits &&
		(!isRounded.MatchString(e.python) || quotient.MatchString(e.python))
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

// pythonOf returns an expression in Python. It returns false if readers may group the expression in two ways, or if its
// nesting, a number or an exponent is too large.
func pythonOf(n *arith.Node, depth int) (string, bool) {
	if n.Kind != arith.Binary {
		depth++
	}
	args, ok := []string{""}, depth <= maxDepth
	for _, arg := range n.Args {
		text, understood := pythonOf(arg, depth)
		args, ok = append(args, text), ok && understood
	}
	first, last := args[min(1, len(n.Args))], args[len(n.Args)]
	switch n.Kind { //nolint:exhaustive // the rest are operators
	case arith.Number:
		last = pythonNumber(n.Text)
		return last, ok && arithNumber.MatchString(n.Text) && len(last) <= maxDigits
	case arith.Constant:
		return n.Text, ok
	case arith.Sign:
		return "(-" + last + ")", ok && n.Args[0].Text != wordPower // -2 ** 2 is -4
	case arith.Group:
		if last == previous || numeral.MatchString(last) || n.Args[0].Kind == arith.Group {
			return last, ok
		}
		return "(" + last + ")", ok
	}
	ok = ok && readOneWay(n)
	switch n.Text {
	case percentOf:
		return first + " * " + last + " / 100", ok
	case "**", "^", wordPower:
		power, err := strconv.ParseFloat(strings.Trim(last, "()-"), 64)
		if last == previous {
			last = "(" + last + ")"
		}
		if err != nil {
			last, power = "limited"+last, maxPower
		}
		for _, m := range exponents.FindAllStringSubmatch(first, -1) { // the powers in the base
			if exponent, err := strconv.ParseFloat(m[1], 64); err == nil {
				power *= max(1, exponent)
			} else {
				power *= maxPower
			}
		}
		return first + " ** " + last, ok && power <= maxPower
	}
	return first + " " + n.Text + " " + last, ok
}

// readOneWay reports whether all readers group an operator alike. They do not for 2 ** 3 ** 2, for "200 / 10% of 50",
// for "50% of 80 + 3", for % as modulo beside % as percent, and not for -5 % 3, which is 1 for some and -2 for others.
func readOneWay(n *arith.Node) bool {
	if slices.Contains(arithGrammar.Sum, n.Text) {
		return n.Args[0].Text != percentOf
	}
	if slices.Contains(arithGrammar.Power, n.Text) {
		return !slices.Contains(arithGrammar.Power, n.Args[1].Text)
	}
	var operators []string // the last first
	signed := n.Args[1].Kind == arith.Sign
	for ; n.Kind == arith.Binary && slices.Contains(arithGrammar.Product, n.Text); n = n.Args[0] {
		operators = append(operators, n.Text)
		signed = signed || n.Args[0].Kind == arith.Sign || n.Args[1].Kind == arith.Sign
	}
	percent, modulo := slices.Contains(operators, percentOf), slices.Contains(operators, "%")
	divided := strings.Contains(strings.Join(operators, " "), percentOf+" /")
	return (!percent || !modulo) && (!modulo || !signed) && !divided
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
	return v, ok && (w.parseArithmetic(t).single || enclosed || signedNumber(t) != "")
}

// readRadicand reads an operand that is not negative on its face.
func readRadicand(w *writer, t []token) (value, bool) {
	v, ok := readOperand(w, t)
	return v, ok && !strings.Contains(v.py, "-")
}

// readReference reads words that mean the last number: "it", "the result", or "the sum" after a sum. The number is not
// known any more if something else has been found or changed since, which the words may mean (see writer.forget).
func readReference(w *writer, t []token) (value, bool) {
	if len(t) == 2 && w.grammar.has("determiner", t[0]) {
		t = t[1:]
	} else if w.grammar.has("pronouns", t...) {
		return value{py: w.vars["number"]}, w.vars["number"] != ""
	}
	kind, ok := w.grammar.phrase("reference", t)
	return value{py: w.vars[kind]}, ok && w.vars[kind] != "" && w.vars[kind] == w.vars["number"]
}
