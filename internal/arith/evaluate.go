package arith

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

const (
	maxExpression = 1000 // bytes
	maxNesting    = 100
)

// calculator is the dialect of Evaluate.
var calculator = Grammar{
	Sum: []string{"+", "-"}, Product: []string{"*", "/", "//", "%"}, Power: []string{"**", "^"},
	Sign:       []string{"-", "+"},
	Names:      slices.Concat([]string{"e", "max", "min", "pi"}, slices.Sorted(maps.Keys(functions))),
	IsFunction: func(name string) bool { return functions[name] != nil || name == "max" || name == "min" },
	MaxNesting: maxNesting,
}

var constants = map[string]float64{"pi": math.Pi, "e": math.E}

var functions = map[string]func(float64) float64{
	"abs": math.Abs, "ceil": math.Ceil, "cos": math.Cos, "exp": math.Exp, "floor": math.Floor, "log": math.Log,
	"log10": math.Log10, "round": math.RoundToEven, "sin": math.Sin, "sqrt": math.Sqrt, "tan": math.Tan,
}

// Evaluate evaluates an arithmetic expression of at most 1,000 bytes. As in Python, -2**2 is -4, 2**-1 is 0.5, and the
// operators // and % round towards minus infinity. The result may be infinite. Error messages address the author of
// the expression.
func Evaluate(text string) (float64, error) {
	if len(text) > maxExpression {
		return 0, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	n, err := calculator.Parse(text)
	if err != nil {
		return 0, err
	}
	v, err := n.evaluate()
	if err == nil && math.IsNaN(v) {
		return 0, errors.New("the result is undefined") // ∞ - ∞
	}
	return v, err
}

func (n *Node) evaluate() (float64, error) {
	if n.Kind == Number {
		v, err := strconv.ParseFloat(n.Text, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number, or is too large", n.Text)
		}
		return v, nil
	}
	values := make([]float64, len(n.Args))
	for i, arg := range n.Args {
		var err error
		if values[i], err = arg.evaluate(); err != nil {
			return 0, err
		}
	}
	switch n.Kind {
	case Constant:
		return constants[n.Text], nil
	case Call:
		return n.call(values)
	case Sign:
		if n.Text == "-" {
			return -values[0], nil
		}
	case Binary:
		return n.binary(values[0], values[1])
	case Number, Group:
	}
	return values[0], nil
}

func (n *Node) binary(x, y float64) (float64, error) {
	switch n.Text {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**", "^":
		return power(x, y)
	}
	if y == 0 {
		return 0, fmt.Errorf("division by zero at character %d", n.At)
	}
	if n.Text == "/" {
		return x / y, nil
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	if n.Text == "%" {
		return r, nil
	}
	return math.RoundToEven((x - r) / y), nil // x/y may be rounded up to the next integer, as in 1//0.1
}

func power(base, exponent float64) (float64, error) {
	if base == 0 && exponent < 0 {
		return 0, errors.New("zero has no negative power")
	}
	v := math.Pow(base, exponent)
	if math.IsNaN(v) {
		return 0, fmt.Errorf("%v to the power of %v is not a real number", base, exponent)
	}
	return v, nil
}

func (n *Node) call(args []float64) (float64, error) {
	switch {
	case n.Text == "min":
		return slices.Min(args), nil
	case n.Text == "max":
		return slices.Max(args), nil
	case len(args) != 1:
		return 0, fmt.Errorf("%s takes one number, not %d", n.Text, len(args))
	}
	v := functions[n.Text](args[0])
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s(%v) is not a finite number", n.Text, args[0])
	}
	return v, nil
}
