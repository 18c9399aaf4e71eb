package rules

import (
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var numberForms = []form{
	{"days until", re(calcVerb + `?\s*(?:how many |the )?(?:number of )?days (?:are (?:there |left )?)?` +
		`(?:until|till|to|before) (?:the )?(?:next |start of |beginning of )?(.+)`), readDaysUntil},
	{
		"sum of", re(`(?:` + calcVerb + ` )?(?:the )?(sum|total|product|average|mean|min(?:imum)?|max(?:imum)?` +
			`|add|sum|multiply) (?:of )?(?:up )?(-?[\d.,]+(?:(?:,? and |, ?|,? by | with )-?[\d.]+)+)(?: together)?`),
		readListOf,
	},
	{"subtract", re(`subtract (\S+) from (.+)`), func(p *planner, m []string, _ clause) bool {
		// "subtract 3 from 10 times 2" may mean 17 or 14.
		return isOperand(m[2]) && p.calculate("("+m[2]+") - ("+m[1]+")")
	}},
	{"add to", re(`add (-?[\d.,]+) to (.+)`), func(p *planner, m []string, _ clause) bool {
		return isOperand(m[2]) && p.calculate("("+m[2]+") + "+m[1])
	}},
	{"difference", re(`(?:` + calcVerb + ` )?(?:the )?(?:absolute |positive )?difference between (-?[\d.,]+)` +
		` and (-?[\d.,]+)`), readDifference},
	{"change by", re(changeVerb + ` (-?[\d.,]+|` + referRe + `) by ([\d.,]+)( ?(?:%|percent))?`), readChangeBy},
	{"combine", re(`(multiply|divide) (.+) (?:by|with|and) (.+)`), func(p *planner, m []string, _ clause) bool {
		if !isOperand(m[3]) {
			return false // "multiply 3 by 2 plus 1" may mean 9 or 7
		}
		operator := map[string]string{"multiply": " * ", "divide": " / "}[strings.ToLower(m[1])]
		return p.calculate("(" + m[2] + ")" + operator + "(" + m[3] + ")")
	}},
	{"scale", re(`(double|triple|halve|square|cube|negate) (.+)`), readScale},
	{"scale", re(`(?:` + calcVerb + ` )?(?:the )?(double|square|cube|square root|half) of (.+)`), readScale},
	{"scale", re(`(?:` + calcVerb + ` )?(?:a|one) (half|third|quarter) of (.+)`), readScale},
	{
		"calculate", re(`(?:` + calcVerb + `\s+)?(?:the (?:value|result) of )?([^=]+?)(?:\s*=\s*(-?[\d.,]+))?`),
		readCalculate,
	},
}

// scales are the Python operations on one number.
var scales = map[string]string{
	"double": " * 2", "triple": " * 3", "negate": " * (-1)", "square": " ** 2", "cube": " ** 3",
	"halve": " / 2", "half": " / 2", "third": " / 3", "quarter": " / 4",
}

func readScale(p *planner, m []string, _ clause) bool {
	if !isOperand(m[2]) {
		return false // "double 8 plus 1" may mean 17 or 18
	}
	operand := "(" + m[2] + ")"
	if scale := scales[strings.ToLower(m[1])]; scale != "" {
		return p.calculate(operand + scale)
	}
	e, ok := p.arithmetic(operand)
	if !ok || strings.Contains(e.python, "-") {
		return false // the number may be negative, which has no root
	}
	p.helper("square_root")
	p.calculated("square root of "+e.python, "square_root("+e.python+")")
	return true
}

func readCalculate(p *planner, m []string, _ clause) bool {
	if !p.calculate(m[1]) {
		return false
	}
	if m[2] != "" {
		claim := strings.TrimRight(m[2], ",.")
		if !separated.MatchString(strings.TrimPrefix(claim, "-")) {
			return false
		}
		claim = number(claim)
		p.emit("if %s != %s:", p.number, claim)
		p.emit("    raise ValueError(%s %% %s)",
			quote("the task says "+p.lits.restore(m[1])+" = "+claim+", but it is %s"), p.number)
	}
	return true
}

// arithmetic reads an expression with an operator. If it refers to a previous number, it must be clear which one.
func (p *planner) arithmetic(text string) (expression, bool) {
	e, ok := parseArithmetic(text)
	if !ok || e.single || e.refers && (p.number == "" || pronoun.MatchString(text) && p.hasLaterOutput()) {
		return expression{}, false
	}
	e.python = strings.ReplaceAll(e.python, previous, p.number)
	return e, true
}

// calculate emits the value of an arithmetic text and makes it the last number.
func (p *planner) calculate(text string) bool {
	e, ok := p.arithmetic(text)
	if !ok {
		return false
	}
	value := e.python
	calculator := p.tool(func(t *tool) bool {
		return t.requires("expression") && t.named("calc", "eval", "math", "compute")
	})
	if e.simple && calculator != nil {
		value = p.call(calculator, quote(value))
	}
	if value != e.python || strings.Contains(value, "/") {
		p.helper("number")
		value = "number(" + value + ")"
	}
	p.calculated(e.python, value)
	return true
}

// calculated emits a Python expression, prints its value after "label =", and makes it the last number.
func (p *planner) calculated(label, python string) {
	variable := p.fresh("value")
	p.emit("%s = %s", variable, python)
	p.number = variable
	p.emit("print(%s, %s)", quote(label+" ="), variable)
	p.output("calculation", variable)
}

var pronoun = regexp.MustCompile(`(?i)\b(?:it|this|that)\b`)

// hasLaterOutput reports whether there is an output after the last number: then "it" is ambiguous.
func (p *planner) hasLaterOutput() bool {
	at := slices.IndexFunc(p.outputs, func(o output) bool { return o.variable == p.number })
	return slices.ContainsFunc(p.outputs[at+1:], func(o output) bool { return !o.condition && !o.elsewhere })
}

var (
	listBreak = regexp.MustCompile(`(?i),? and |,? by | with |, `)
	// separated matches a numeral, with or without thousands separators.
	separated = regexp.MustCompile(`^(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)$`)
)

func readListOf(p *planner, m []string, _ clause) bool {
	var numbers []string
	for _, n := range listBreak.Split(strings.TrimRight(m[2], "."), -1) {
		if !separated.MatchString(n) {
			return false // "1,5" and "1.000,5" may be one number or two
		}
		numbers = append(numbers, number(n))
	}
	if len(numbers) < 2 {
		return false
	}
	if strings.Contains(strings.ToLower(m[2]), " by ") && len(numbers) > 2 {
		return false // "multiply 3 by 4 and 5" may mean one product or two
	}
	joined := strings.Join(numbers, ", ")
	switch op := strings.ToLower(m[1]); op {
	case "sum", "total", "add":
		return p.calculate(strings.Join(numbers, " + "))
	case "product", "multiply":
		return p.calculate(strings.Join(numbers, " * "))
	case "average", "mean":
		return p.calculate("(" + strings.Join(numbers, " + ") + ") / " + strconv.Itoa(len(numbers)))
	default:
		variable := p.fresh("value")
		p.emit("%s = %s([%s])", variable, op[:3], joined)
		p.emit("print(%s, %s)", quote(op+" of "+joined+":"), variable)
		p.number = variable
		p.output("calculation", variable)
	}
	return true
}

var months = []string{
	"january", "february", "march", "april", "may", "june", "july", "august", "september",
	"october", "november", "december",
}

var monthDay = regexp.MustCompile(`(?i)^(?:(january|february|march|april|may|june|july|august|september|october|` +
	`november|december) (\d{1,2})(?:st|nd|rd|th)?|(\d{1,2})(?:st|nd|rd|th)?(?: of)? (january|february|march|` +
	`april|may|june|july|august|september|october|november|december))$`)

func readDaysUntil(p *planner, m []string, _ clause) bool {
	when := strings.ToLower(strings.TrimSuffix(m[1], "?"))
	fixed := map[string]string{
		"christmas": "12, 25", "new year": "1, 1", "new year's day": "1, 1",
		"new years day": "1, 1", "halloween": "10, 31",
	}
	variable := p.fresh("days")
	switch {
	case slices.Contains([]string{"spring", "summer", "autumn", "fall", "winter"}, when):
		season := strings.Replace(when, "fall", "autumn", 1)
		p.helper("days_until_season")
		p.emit("%s = days_until_season(%s)", variable, quote(season))
	case fixed[when] != "":
		p.helper("days_until")
		p.emit("%s = days_until(%s)", variable, fixed[when])
	default:
		d := monthDay.FindStringSubmatch(when)
		if d == nil {
			return false
		}
		month, day := slices.Index(months, d[1]+d[4])+1, d[2]+d[3]
		if n, _ := strconv.Atoi(day); n == 0 ||
			time.Date(2001, time.Month(month), n, 0, 0, 0, 0, time.UTC).Month() != time.Month(month) {
			return false // the day does not exist in every year
		}
		p.helper("days_until")
		p.emit("%s = days_until(%d, %s)", variable, month, number(day))
	}
	p.emit("print(%s, %s)", quote("Days until "+when+":"), variable)
	p.number = variable
	p.output("days until "+when, variable)
	return true
}

// referring matches a text that refers to the last number.
var referring = regexp.MustCompile(`(?i)^` + referRe + `$`)

const referRe = `(?:the (?:previous |last )?(?:result|sum|product|total|answer|value|number)` +
	`|that(?: number| result)?|it|this)`

// isOperand reports whether a text is one operand, whatever operator stands beside it.
func isOperand(s string) bool {
	s = digits(strings.TrimSpace(s))
	return s != "" && !strings.ContainsAny(s[1:], " +-−*×/÷%^") || referring.MatchString(s) || s[0] == '(' &&
		strings.IndexByte(s, ')') == len(s)-1
}

// readDifference subtracts the smaller number from the larger one, because a difference between two numbers is not
// negative.
func readDifference(p *planner, m []string, _ clause) bool {
	a, b := m[1], m[2]
	var values [2]*big.Rat
	for i, n := range []string{a, b} {
		value, ok := new(big.Rat).SetString(strings.ReplaceAll(n, ",", ""))
		if !ok || !separated.MatchString(strings.TrimPrefix(n, "-")) {
			return false
		}
		values[i] = value
	}
	if values[0].Cmp(values[1]) < 0 {
		a, b = b, a
	}
	return p.calculate("(" + a + ") - (" + b + ")")
}

func readChangeBy(p *planner, m []string, _ clause) bool {
	by := map[bool]string{true: "(" + m[3] + ")", false: "(" + m[2] + ") * " + m[3] + " / 100"}[m[4] == ""]
	return p.calculate("(" + m[2] + ") " + changeSign(m[1]) + " " + by)
}

// changeSign returns the operator for a changeVerb.
func changeSign(verb string) string {
	if strings.HasPrefix(strings.ToLower(verb), "in") {
		return "+"
	}
	return "-"
}
