package codegen

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expression is arithmetic that was understood: its Python text, and what it needs.
type expression struct {
	python string
	refers bool // to the previous number, written as the name result_so_far in python
	plain  bool // only numbers, + - * / and parentheses: any calculator can do it, also one that knows only floats
	single bool // one number and nothing else
}

const (
	previous  = "result_so_far"
	percentOf = "percent_of"
)

// Words for operators, longest first. The last group refers to the previous number.
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
	{regexp.MustCompile(`(?i)\b(?:the (?:previous |last )?(?:result|sum|product|total|answer|value|number)|that(?: number| result)?|it|this)\b`), " " + previous + " "},
}

var (
	arithToken = regexp.MustCompile(`^(?:(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d+|\.\d+)|(\*\*|[-+*/%()×÷^−])|(` + previous + `|` + percentOf + `))`)
	maxPower   = 1000.0
	notDecimal = regexp.MustCompile(`(?i)\b0[xbo][0-9a-f]`)                                            // 0x10 is no product
	notNumbers = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/-]\d{1,2}[/-](?:\d{2}|\d{4})\b`) // dates

	// -5 mod 3 is 1 for some and -2 for others.
	negativeModulo = regexp.MustCompile(`(?:^|[-+*/(%×÷−])\s*[-−]\s*[\d.,]+\s*%|%\s*[-−]`)

	// "-2 squared" is 4 for some and -4 for others.
	negativePower = regexp.MustCompile(`(?i)(?:^|[-+*/(×÷−]|\bby\b|\btimes\b|\bplus\b|\bminus\b)\s*(?:[-−]|\bminus\b)\s*[\d.,]+\s+(?:squared|to the power|raised)`)
)

// parseArithmetic understands an expression that is nothing but arithmetic.
func parseArithmetic(s string) (expression, bool) {
	s = digits(strings.TrimSpace(s))
	if notDecimal.MatchString(s) || notNumbers.MatchString(s) || negativePower.MatchString(s) {
		return expression{}, false
	}
	for _, w := range operatorWords {
		s = w.pattern.ReplaceAllString(s, w.symbol)
	}
	if negativeModulo.MatchString(s) {
		return expression{}, false
	}
	p := arithParser{plain: true}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		m := arithToken.FindStringSubmatch(s)
		if m == nil {
			return expression{}, false
		}
		p.tokens = append(p.tokens, m[0])
		s = s[len(m[0]):]
	}
	text, ok := p.sum(0)
	if !ok || p.at != len(p.tokens) || len(p.tokens) == 0 {
		return expression{}, false
	}
	return expression{python: text, refers: p.refers, plain: p.plain && !p.refers && p.digits <= floatDigits, single: len(p.tokens) == 1}, true
}

var (
	smallNumbers = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
	tens         = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
	numberInWord = regexp.MustCompile(`(?i)\b(?:(` + strings.Join(tens[2:], "|") + `)(?:-(` + strings.Join(smallNumbers[1:10], "|") + `))?|(` + strings.Join(smallNumbers, "|") + `))\b`)
)

// digits writes numbers up to ninety-nine as digits. Larger ones in words stay, and are not understood.
func digits(s string) string {
	return numberInWord.ReplaceAllStringFunc(s, func(word string) string {
		m := numberInWord.FindStringSubmatch(strings.ToLower(word))
		n := max(0, slices.Index(smallNumbers, m[2]+m[3])) + 10*max(0, slices.Index(tens, m[1]))
		return strconv.Itoa(n)
	})
}

// arithParser is a recursive descent over the tokens; it gives Python text back.
type arithParser struct {
	tokens        []string
	at            int
	plain, refers bool
	digits        int // of all numbers together: no product of them has more
}

const floatDigits = 15 // a float holds every whole number of so many

func (p *arithParser) peek() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return ""
}

func (p *arithParser) sum(depth int) (string, bool) {
	return p.chain(depth, p.product, map[string]string{"+": "+", "-": "-", "−": "-"})
}

func (p *arithParser) product(depth int) (string, bool) {
	return p.chain(depth, p.power, map[string]string{"*": "*", "×": "*", "/": "/", "÷": "/", "%": "%", percentOf: "*"})
}

func (p *arithParser) chain(depth int, operand func(int) (string, bool), operators map[string]string) (string, bool) {
	var text strings.Builder
	left, ok := operand(depth)
	text.WriteString(left)
	last, percent, modulo := "", false, false
	for ok {
		word := p.peek()
		symbol, is := operators[word]
		if !is {
			break
		}
		percent, modulo = percent || word == percentOf, modulo || symbol == "%"
		if word == percentOf && last == "/" || percent && modulo {
			return "", false // "200 / 10% of 50": 40 or 10?
		}
		last = symbol
		p.at++
		p.plain = p.plain && symbol != "%"
		var right string
		right, ok = operand(depth)
		text.WriteString(" " + symbol + " " + right)
		if word == percentOf {
			text.WriteString(" / 100")
		}
	}
	return text.String(), ok
}

func (p *arithParser) power(depth int) (string, bool) {
	base, ok := p.factor(depth)
	if !ok || p.peek() != "**" && p.peek() != "^" {
		return base, ok
	}
	p.at++
	p.plain = false
	exponent, ok := p.factor(depth)
	if n, err := strconv.ParseFloat(strings.Trim(exponent, "()-"), 64); err == nil && n > maxPower {
		return "", false
	}
	return base + " ** " + exponent, ok
}

const maxDepth = 50

func (p *arithParser) factor(depth int) (string, bool) {
	t := p.peek()
	p.at++
	switch {
	case t == "" || depth > maxDepth:
		return "", false
	case t == "(":
		inner, ok := p.sum(depth + 1)
		if !ok || p.peek() != ")" {
			return "", false
		}
		p.at++
		if inner == previous || numeral.MatchString(inner) {
			return inner, true
		}
		return "(" + inner + ")", true
	case t == "-" || t == "−":
		inner, ok := p.power(depth + 1) // -2 ** 2 is -4
		return "(-" + inner + ")", ok
	case t == previous:
		p.refers = true
		return t, true
	case t[0] >= '0' && t[0] <= '9' || t[0] == '.':
		p.digits += len(number(t))
		return number(t), true
	}
	return "", false
}

// number writes a numeral as Python wants it: no separators, no leading zeros.
func number(s string) string {
	s = strings.TrimLeft(strings.ReplaceAll(s, ",", ""), "0")
	if s == "" || s[0] == '.' {
		s = "0" + s
	}
	return s
}
