package arith_test

import (
	"math"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/arith"
)

func TestEvaluate(t *testing.T) {
	for text, want := range map[string]float64{
		"2*3+4": 10, "2+3*4": 14, "(2+3)*4": 20, "-2**2": -4, "2**-1": 0.5, "2**3**2": 512, "2^10": 1024, "7//2": 3,
		"-7//2": -4, "1//0.1": 9, "-1//0.1": -10, "7//-2": -4,
		"7%3": 1, "-7%3": 2, "7 % -3": -2, "10/4": 2.5, "--3": 3, "+-+3": -3, "1e3": 1000, ".5+.5": 1, "1.": 1,
		"2e":       math.NaN(),
		"sqrt(16)": 4, "max(1, 2, 3)": 3, "min(4,-1)": -1, "pi": math.Pi, "abs(-3)*2": 6, "8-3-2": 3, "100/10/2": 5,
		"2*-3":       -6,
		"round(2.5)": 2, "((((1))))": 1, " 1 + 2 ": 3, "10 * 5": 50, "5 + 3": 8, "0.1+0.2": 0.30000000000000004,
		"2**0.5": math.Sqrt2,
	} {
		got, err := arith.Evaluate(text)
		if math.IsNaN(want) {
			if err == nil {
				t.Errorf("Evaluate(%q) = %v, want an error", text, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("Evaluate(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":             "ends too early: a number, a name or ( was expected at character 1",
		"2+":           "ends too early",
		"2*(3+4":       `ends too early: ")" was expected at character 7`,
		"2 3":          `unexpected "3" at character 3: an operator or the end was expected`,
		"abc":          `unknown name "abc" at character 1`,
		"1/0":          "division by zero",
		"5 % (1-1)":    "division by zero",
		"(-8)**(1/3)":  "not a real number",
		"0**-1":        "no negative power",
		"sqrt(-1)":     "not a finite number",
		"sqrt(1, 2)":   "takes one number, not 2",
		"max()":        "unexpected",
		"1 + é":        `unexpected "é" at character 5`,
		"__import__(1": "unknown name",
		"9e999":        "too large",
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200): "nested deeper than 100",
		strings.Repeat("1+", 600) + "1":                           "longer than 1000",
	} {
		if got, err := arith.Evaluate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Evaluate(%.40q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func FuzzEvaluate(f *testing.F) {
	f.Add("2*3+4")
	f.Add("max(1,-2)**(3")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := arith.Evaluate(text); err == nil && v != v {
			t.Errorf("Evaluate(%q) = NaN, want an error", text)
		}
	})
}

func TestParse(t *testing.T) {
	g := arith.Grammar{
		Sum: []string{"−"}, Product: []string{"of"}, Names: []string{"total"}, Thousands: true,
		MaxNesting: 3,
	}
	for text, ok := range map[string]bool{
		"1,000 of (2 − total)": true, "1,00": false, "1,0000": false, "total(1)": false, "+1": false, "3 * 4": false,
		"((1))": true, "(((1)))": false,
	} {
		if _, err := g.Parse(text); (err == nil) != ok {
			t.Errorf("Parse(%q) error = %v, want ok %v", text, err, ok)
		}
	}
}
