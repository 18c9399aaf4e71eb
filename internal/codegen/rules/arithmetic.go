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
	python  string
	refers  bool // it refers to the previous number
	pronoun bool // it refers by a pronoun, such as "it"
	clear   bool // only the last number can be the one to which it refers
	simple  bool // short numbers, + - * / and parentheses: a calculator that computes in floats is exact
	single  bool // one number and nothing else
	digits  int  // of all numbers together; their product has at most as many
	ok      bool
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
	dateLike = regexp.MustCompile(`\b\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})\b`)
	// arithNumber matches a number without an exponent and without a point at its end.
	arithNumber = regexp.MustCompile(`^[\d,]*\.?\d+$`)

	units = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
)

// digits returns a number word up to ninety-nine in digits, and any other text unchanged.
func digits(s string) string {
	ten, unit, joined := strings.Cut(strings.ToLower(s), "-")
	t, u := slices.Index(tens, ten), slices.Index(units, unit)
	switch {
	case ten == "" || joined && (t < 0 || u < 1 || u > 9):
		return s
	case !joined && t < 0:
		if u = slices.Index(units, ten); u < 0 {
			return s
		}
	}
	return strconv.Itoa(10*max(t, 0) + max(u, 0))
}

// parseArithmetic reads tokens that are one arithmetic expression and nothing else.
func (w *writer) parseArithmetic(t []token) expression {
	e := expression{simple: true}
	var text string
	for i := 0; i < len(t); {
		py, size := w.grammar.prefix("operator", t[i:])
		if size == 0 {
			py, size = digits(t[i].text), 1
			if !plainNumber.MatchString(py) || t[i].kind != word && t[i].kind != number {
				return e
			}
		}
		e.pronoun = e.pronoun || w.grammar.has("pronouns", t[i])
		text += py + " "
		i += size
	}
	n, err := arithGrammar.Parse(text)
	if err != nil || dateLike.MatchString(asWritten(t)) {
		return e
	}
	e.python, e.ok = e.write(n, 0)
	e.python = strings.ReplaceAll(e.python, previous, w.vars["number"])
	e.clear = !e.refers || w.vars["number"] != "" && (!e.pronoun || !w.foundSince())
	e.single = n.Kind == arith.Number || n.Kind == arith.Constant
	e.simple = e.simple && !e.refers && e.digits <= floatDigits
	return e
}

// asWritten returns the text of tokens, with spaces only where the task has them.
func asWritten(t []token) string {
	var b strings.Builder
	for i := range t {
		if i > 0 && t[i].start > t[i-1].end {
			b.WriteByte(' ')
		}
		b.WriteString(t[i].text)
	}
	return b.String()
}

// write returns an expression in Python. It returns false if readers may group the expression in two ways, or if its
// nesting, a number or an exponent is too large.
func (e *expression) write(n *arith.Node, depth int) (string, bool) {
	var left, right string
	ok := depth <= maxDepth
	if n.Kind != arith.Binary {
		depth++
	}
	for i, arg := range n.Args {
		text, understood := e.write(arg, depth)
		if ok = ok && understood; i == 0 {
			left = text
		}
		right = text
	}
	if !ok {
		return "", false
	}
	switch n.Kind { //nolint:exhaustive // the rest are operators
	case arith.Number:
		text := pythonNumber(n.Text)
		e.digits += len(text)
		return text, arithNumber.MatchString(n.Text) && len(text) <= maxDigits
	case arith.Constant:
		e.refers = true
		return n.Text, true
	case arith.Sign:
		return "(-" + left + ")", n.Args[0].Text != wordPower // -2 ** 2 is -4
	case arith.Group:
		if left == previous || numeral.MatchString(left) || n.Args[0].Kind == arith.Group {
			return left, true
		}
		return "(" + left + ")", true
	}
	switch n.Text {
	case percentOf:
		return left + " * " + right + " / 100", readOneWay(n)
	case "**", "^", wordPower:
		e.simple = false
		exponent, err := strconv.ParseFloat(strings.Trim(right, "()-"), 64)
		return left + " ** " + right, readOneWay(n) && (err != nil || exponent <= maxPower)
	case "%":
		e.simple = false
	}
	return left + " " + n.Text + " " + right, readOneWay(n)
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
	return value{py: e.python}, e.ok
}

// readOperand reads one operand to which any operator can be applied as it stands: a number, "it", or an expression in
// parentheses.
func readOperand(w *writer, t []token) (value, bool) {
	e := w.parseArithmetic(t)
	enclosed := t[0].is("(") && slices.IndexFunc(t, func(t token) bool { return t.is(")") }) == len(t)-1
	return value{py: e.python}, e.ok && (e.single || enclosed || signedNumber(t) != "")
}

// readRadicand reads an operand that is not negative on its face.
func readRadicand(w *writer, t []token) (value, bool) {
	v, ok := readOperand(w, t)
	return v, ok && !strings.Contains(v.py, "-") && w.parseArithmetic(t).clear
}
