package builtin

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Evaluate computes an arithmetic expression with the precedence of Python: ** (or ^) binds
// rightmost and tighter than a minus before it, so -2**2 is -4 and 2**-1 is 0.5; then * / // %, then
// + and -. // and % round towards minus infinity. An error names the character, from 1, where the
// expression stops making sense.
func Evaluate(text string) (float64, error) {
	if len(text) > maxExpression {
		return 0, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	p := &parser{text: text}
	v, err := p.sum()
	if err != nil {
		return 0, err
	}
	if p.peek() != "" {
		return 0, p.unexpected("an operator or the end")
	}
	return v, nil
}

const (
	maxExpression = 1000 // bytes
	maxNesting    = 100  // parentheses, powers and signs
)

type parser struct {
	text  string
	pos   int
	depth int
}

// peek returns the next token without taking it; "" at the end.
func (p *parser) peek() string {
	rest := strings.TrimLeftFunc(p.text[p.pos:], unicode.IsSpace)
	p.pos = len(p.text) - len(rest)
	if rest == "" {
		return ""
	}
	for _, op := range []string{"**", "//"} {
		if strings.HasPrefix(rest, op) {
			return op
		}
	}
	c := rest[0]
	switch {
	case c >= '0' && c <= '9' || c == '.':
		return rest[:numberLength(rest)]
	case wordByte(c):
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= 0x80 || !wordByte(byte(r)) && (r < '0' || r > '9') })
		if end < 0 {
			end = len(rest)
		}
		return rest[:end]
	}
	_, size := utf8.DecodeRuneInString(rest)
	return rest[:size]
}

func wordByte(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }

// numberLength is the length of digits with at most one point, and an exponent with digits.
func numberLength(s string) int {
	digits := func(i int) int {
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i
	}
	end := digits(0)
	if end < len(s) && s[end] == '.' {
		end = digits(end + 1)
	}
	if end < len(s) && s[end]|0x20 == 'e' {
		from := end + 1
		if from < len(s) && (s[from] == '+' || s[from] == '-') {
			from++
		}
		if to := digits(from); to > from {
			end = to
		}
	}
	return end
}

func (p *parser) take(tokens ...string) string {
	if t := p.peek(); t != "" && slices.Contains(tokens, t) {
		p.pos += len(t)
		return t
	}
	return ""
}

func (p *parser) unexpected(wanted string) error {
	at := utf8.RuneCountInString(p.text[:p.pos]) + 1
	if t := p.peek(); t != "" {
		return fmt.Errorf("unexpected %q at character %d: %s was expected", t, at, wanted)
	}
	return fmt.Errorf("the expression ends too early: %s was expected at character %d", wanted, at)
}

func (p *parser) sum() (float64, error) {
	v, err := p.product()
	for err == nil {
		op := p.take("+", "-")
		if op == "" {
			return v, nil
		}
		var w float64
		if w, err = p.product(); op == "-" {
			w = -w
		}
		v += w
	}
	return 0, err
}

func (p *parser) product() (float64, error) {
	v, err := p.unary()
	for err == nil {
		op := p.take("*", "/", "//", "%")
		if op == "" {
			return v, nil
		}
		at := p.pos
		var w float64
		if w, err = p.unary(); err != nil {
			break
		}
		if op != "*" && w == 0 {
			return 0, fmt.Errorf("division by zero at character %d", utf8.RuneCountInString(p.text[:at]))
		}
		switch op {
		case "*":
			v *= w
		case "/":
			v /= w
		case "//":
			v = math.Floor(v / w)
		case "%":
			if v = math.Mod(v, w); v != 0 && (v < 0) != (w < 0) {
				v += w
			}
		}
	}
	return 0, err
}

func (p *parser) unary() (float64, error) {
	if p.depth++; p.depth > maxNesting {
		return 0, fmt.Errorf("the expression is nested deeper than %d levels", maxNesting)
	}
	defer func() { p.depth-- }()
	switch p.take("-", "+") {
	case "-":
		v, err := p.unary()
		return -v, err
	case "+":
		return p.unary()
	}
	return p.power()
}

func (p *parser) power() (float64, error) {
	base, err := p.atom()
	if err != nil || p.take("**", "^") == "" {
		return base, err
	}
	exponent, err := p.unary() // to the right first
	if err != nil {
		return 0, err
	}
	if base == 0 && exponent < 0 {
		return 0, errors.New("zero has no negative power")
	}
	v := math.Pow(base, exponent)
	if math.IsNaN(v) {
		return 0, fmt.Errorf("%v to the power of %v is not a real number", base, exponent)
	}
	return v, nil
}

func (p *parser) atom() (float64, error) {
	t := p.peek()
	switch {
	case t == "(":
		p.pos++
		v, err := p.sum()
		if err == nil && p.take(")") == "" {
			err = p.unexpected(`")"`)
		}
		return v, err
	case t != "" && (t[0] == '.' || t[0] >= '0' && t[0] <= '9'):
		v, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no number, or too large", t)
		}
		p.pos += len(t)
		return v, nil
	case t != "" && wordByte(t[0]):
		return p.word(t)
	}
	return 0, p.unexpected("a number, a name or (")
}

var constants = map[string]float64{"pi": math.Pi, "e": math.E}

var functions = map[string]func(float64) float64{
	"abs": math.Abs, "ceil": math.Ceil, "cos": math.Cos, "exp": math.Exp, "floor": math.Floor, "log": math.Log,
	"log10": math.Log10, "round": math.RoundToEven, "sin": math.Sin, "sqrt": math.Sqrt, "tan": math.Tan,
}

func (p *parser) word(name string) (float64, error) {
	if v, ok := constants[name]; ok {
		p.pos += len(name)
		return v, nil
	}
	f, ok := functions[name]
	if !ok && name != "min" && name != "max" {
		known := slices.Sorted(maps.Keys(functions))
		return 0, fmt.Errorf("unknown name %q at character %d; there are e, max, min, pi, %s",
			name, utf8.RuneCountInString(p.text[:p.pos])+1, strings.Join(known, ", "))
	}
	p.pos += len(name)
	args, err := p.arguments()
	switch {
	case err != nil:
		return 0, err
	case name == "min":
		return slices.Min(args), nil
	case name == "max":
		return slices.Max(args), nil
	case len(args) != 1:
		return 0, fmt.Errorf("%s takes one number, not %d", name, len(args))
	}
	v := f(args[0])
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s(%v) is not a finite number", name, args[0])
	}
	return v, nil
}

// arguments reads "(a, b, …)", at least one.
func (p *parser) arguments() ([]float64, error) {
	if p.take("(") == "" {
		return nil, p.unexpected(`"("`)
	}
	var args []float64
	for {
		v, err := p.sum()
		if err != nil {
			return nil, err
		}
		args = append(args, v)
		if p.take(",") != "" {
			continue
		}
		if p.take(")") == "" {
			return nil, p.unexpected(`"," or ")"`)
		}
		return args, nil
	}
}
