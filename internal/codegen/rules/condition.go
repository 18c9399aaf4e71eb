package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

const comparison = `(above|over|greater than|more than|higher than|warmer than|>|below|under|less than|` +
	`lower than|colder than|<|at least|>=|at most|<=|equal to|equals|exactly|==|not)`

var conditionForms = []form{
	{"if", re(`if (?:the |its |their )?(?:current )?(\w+)(?: there)? (?:is |are |was )?` + comparison +
		` (-?[\d.]+)\s*(?:°|degrees)?\s*(celsius|fahrenheit|c|f|%)?(?:,? then)?(?:[,:]? (.+))?`), readIf},
}

var operators = map[string]string{
	"above": ">", "over": ">", "greater than": ">", "more than": ">", "higher than": ">", "warmer than": ">",
	"below": "<", "under": "<", "less than": "<", "lower than": "<", "colder than": "<", "at least": ">=",
	"at most":  "<=",
	"equal to": "==", "equals": "==", "exactly": "==", "not": "!=",
}

func readIf(p *planner, m []string, c clause) bool {
	subject, operator, limit := strings.ToLower(m[1]), cmp.Or(operators[strings.ToLower(m[2])], m[2]), m[3]
	if !numeral.MatchString(limit) || m[4] != "" { // the unit of the tool's value is unknown
		return false
	}
	var value string
	switch {
	case slices.Contains([]string{"result", "it", "that", "sum", "total", "value", "answer"}, subject) &&
		p.number != "":
		value = p.number
	case p.record != "" && !p.several:
		value = p.fresh("measured")
		p.helper("number", "field")
		p.emit("%s = number(field(%s, %s))", value, p.record, quote(subject))
	default:
		return false
	}
	then, otherwise := p.branches(c, m[5])
	if len(then) == 0 || joinedByThen(then) || joinedByThen(otherwise) {
		return false // in "if …, do this, then that", it is unclear whether "that" is conditional
	}
	outcome := p.fresh("condition")
	text := subject + " " + strings.ToLower(m[2]) + " " + limit
	p.emit("%s = %s %s %s", outcome, value, operator, limit)
	p.emit("print(%s, %s, %s)", quote(text+":"), outcome, "\"(\" + str("+value+") + \")\"")
	p.output(text, outcome)
	p.outputs[len(p.outputs)-1].condition = true
	at, outputs := len(p.body), len(p.outputs)
	p.branch("if "+outcome+":", then)
	if len(otherwise) > 0 {
		first := len(p.outputs)
		for i := outputs; i < first; i++ {
			p.outputs[i].elsewhere = true
		}
		p.branch("else:", otherwise)
		for i := outputs; i < first; i++ {
			p.outputs[i].elsewhere = false
		}
	}
	var none []string // assigns None to the outputs of both branches; the branch that runs replaces its own
	for _, o := range p.outputs[outputs:] {
		none = append(none, strings.Repeat("    ", p.depth)+o.variable+" = None")
	}
	p.body = slices.Insert(p.body, at, none...)
	return true
}

// branches consumes the clauses of a condition: the rest of its sentence, and the sentence that "otherwise" begins.
func (p *planner) branches(c clause, first string) (then, otherwise []clause) {
	if first != "" {
		then = append(then, clause{text: tidy(first), sentence: c.sentence})
	}
	inElse := false
	for ; p.at < len(p.clauses); p.at++ {
		next := p.clauses[p.at]
		rest := elseWord.ReplaceAllString(next.text, "")
		starts := rest != next.text
		if next.sentence != c.sentence && !starts {
			break
		}
		if starts {
			inElse, c.sentence, next.text = true, next.sentence, tidy(rest)
		}
		if inElse {
			otherwise = append(otherwise, next)
		} else {
			then = append(then, next)
		}
	}
	return then, otherwise
}

// joinedByThen reports whether "then" joins two clauses of a branch.
func joinedByThen(branch []clause) bool {
	return len(branch) > 1 && slices.ContainsFunc(branch[1:], func(c clause) bool { return c.then })
}

var elseWord = regexp.MustCompile(`(?i)^(?:otherwise|else|if not)\b[, ]*`)

// branch emits a statement such as "else:" and reads clauses into its block. Later clauses cannot refer to the block's
// variables.
func (p *planner) branch(statement string, clauses []clause) {
	before := *p
	p.emit("%s", statement)
	p.depth++
	start := len(p.body)
	p.clauses, p.at = clauses, 0
	for p.at < len(p.clauses) {
		p.step()
	}
	if p.dirty {
		p.saveDocument()
	}
	if !slices.ContainsFunc(p.body[start:],
		func(l string) bool { return !strings.HasPrefix(strings.TrimSpace(l), "#") }) {
		p.emit("pass")
	}
	p.depth--
	p.clauses, p.at = before.clauses, before.at
	p.number, p.record, p.text, p.rows, p.doc, p.path = before.number, before.record, before.text, before.rows,
		before.doc, before.path
}
