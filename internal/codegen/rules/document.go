package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// documentForms create, read, change, save and verify one JSON file.
var documentForms = []form{
	{"heading", re(`(?:initiali[sz]e|start|begin|continue|resume|complete|finish|run) (?:an?|the|this|our|my)?` +
		`\s*(?:[a-z]+ )?(?:workflow|session|pipeline)(?: from (?:the|a) (?:previous|last|earlier)` +
		` (?:session|run|task))?`), func(*planner, []string, clause) bool { return true }},
	{"create", re(`(?:create|initiali[sz]e|write|save|store)` +
		`(?: (?:a|an|the|new|initial|json|state|file|data|to|in|into|called|named))* ` + pathRe +
		`(?: (?:with|containing|that contains|as|using)(?: (?:the )?(?:following|contents?|fields?` +
		`|data|state)(?: (?:contents?|fields?|data|state))?)?:?(?: (⟦j\d+⟧))?)?`), readCreate},
	{"save to", re(`(?:save|store|write)(?: (?:the )?(?:results?|state)(?: and (?:the )?metadata)?| it| that)?` +
		` (?:to|in|into) (?:the file )?` + pathRe), readSaveTo},
	{"contents", re(`(?:the |this )?(?:json )?(?:file|document|state) (?:should|must|shall|will|has to)` +
		` (?:contain|have|hold)(?: the following)?(?: fields)?`), func(p *planner, _ []string, c clause) bool {
		return p.file != "" && p.doc == "" && p.createDocument(p.file, c)
	}},
	{"read", re(`(?:read|load|open|get)(?: (?:the|current|saved|workflow|state|file|json|data|from|in|it))* ` +
		pathRe + session), readDocument},
	{
		"save", re(`(?:save|store|write) ` + docNoun + `(?: back)?(?: (?:to|in|into) ` + pathRe + `)?(?: again)?`),
		func(p *planner, m []string, _ clause) bool {
			if p.doc == "" {
				return false
			}
			if m[1] != "" {
				p.file = p.pathOf(m[1])
			}
			p.saveDocument()
			return true
		},
	},
	{
		"append", re(`(?:add|append|push) (?:the |that |this )?(?:result|value|number|answer|it)` +
			`(?: of (?:the|this|that) calculation)? (?:to|onto|into) (?:the |its )?` + nameRe + ` (?:array|list)`),
		func(p *planner, m []string, _ clause) bool {
			if p.doc == "" || p.number == "" || p.hasLaterOutput() {
				return false
			}
			p.emit("%s[%s].append(%s)", p.doc, p.key(m[1]), p.number)
			p.dirty = true
			return true
		},
	},
	{"sum up", re(calcVerb + ` (?:the )?(?:sum|total) of (?:all |the )*(?:the )?` + nameRe + `(?: in (?:the |its )?` +
		nameRe + ` (?:array|list))?`), func(p *planner, m []string, _ clause) bool {
		field := m[1]
		if m[2] != "" {
			field = m[2]
		}
		return p.sumField(field)
	}},
	{"total field", re(`(?:add|set|create|store|save) (?:a |an |the )?(?:new )?` + nameRe +
		` field (?:with|to|as|holding) (?:the )?(?:sum|total)(?: of (?:all |the )*` + nameRe +
		`(?: in (?:the |its )?` + nameRe + ` (?:array|list))?)?`), func(p *planner, m []string, _ clause) bool {
		if p.doc == "" {
			return false
		}
		if m[2] != "" && !p.sumField(cmp.Or(m[3], m[2])) || m[2] == "" && !p.isSum() {
			return false
		}
		p.emit("%s[%s] = %s", p.doc, p.key(m[1]), p.number)
		p.dirty = true
		return true
	}},
	{"new field", re(`(?:add|set|create) (?:a |an |the )?(?:new )?field:? ` + nameRe +
		`\s*(?::|=|to|with(?: the)? value) ` + valueRe), readSet},
	{"new field", re(`(?:add|set|create) (?:a |an |the )?(?:new )?` + nameRe +
		` field (?:with(?: the)? value|to|as|=) ` + valueRe), readSet},
	{"set", re(`(?:update|set|change) (.+ to .+)`), readUpdates},
	{
		"increment", re(`increment (?:the )?` + nameRe + `(?: field)?(?: by (\d+))?`),
		func(p *planner, m []string, _ clause) bool {
			if p.doc == "" {
				return false
			}
			p.emit("%s[%s] += %s", p.doc, p.key(m[1]), cmp.Or(m[2], "1"))
			p.dirty = true
			return true
		},
	},
	{
		"verify", re(`(?:verify|confirm|check|ensure|make sure)(?: that)? ` + pathRe +
			` (?:exists|is (?:there|mounted|available))(?: and is (?:mounted|writable|available|accessible))?`),
		func(p *planner, m []string, _ clause) bool {
			p.modules["pathlib"] = true
			path := p.pathOf(m[1])
			p.emit("if not pathlib.Path(%s).exists():", path)
			p.emit("    raise FileNotFoundError(%s)", path)
			p.emit("print(%s, %s)", path, quote("exists"))
			return true
		},
	},
	{
		"verify", re(`(?:verify|confirm|check|ensure|make sure)(?: that)? (?:the |that |this )?(?:json |state )?` +
			`(?:file|document|state) (?:was|is|has been|exists|got)(?: (?:created|saved|written|there|updated))?`),
		func(p *planner, _ []string, _ clause) bool {
			path := cmp.Or(p.file, p.path)
			if path == "" {
				return false
			}
			if p.dirty {
				p.saveDocument()
			}
			p.modules["pathlib"] = true
			p.emit("if not pathlib.Path(%s).is_file():", path)
			p.emit("    raise FileNotFoundError(%s)", path)
			p.emit("print(%s, %s)", path, quote("exists"))
			return true
		},
	},
	{"verify", re(`(?:verify|confirm|check|ensure|make sure)(?: that)? (?:you|we|i) can (?:read|load|access)` +
		` (?:the )?(?:saved )?(?:state|data)(?: file)?` + session), func(p *planner, _ []string, _ clause) bool {
		if p.doc == "" {
			return false
		}
		p.emit("print(%s, %s)", quote("The state is readable:"), p.file)
		return true
	}},
}

const (
	nameRe  = `(⟦q\d+⟧|[A-Za-z_][\w-]*)`
	valueRe = `(⟦[qjp]\d+⟧|-?\d+(?:\.\d+)?|true|false|null|none|[A-Za-z_][\w-]*)`
)

// key returns a field's name as a Python string literal.
func (p *planner) key(name string) string {
	if _, text, ok := p.lits.text(name); ok {
		name = text
	}
	return quote(name)
}

// value returns a value of the task as Python. It returns false if it is unclear whether the value is a number or text.
func (p *planner) value(text string) (string, bool) {
	text = strings.TrimSpace(text)
	if kind, literal, ok := p.lits.text(text); ok {
		if kind == jsonText {
			return pythonLiteral(literal)
		}
		return quote(literal), true
	}
	switch strings.ToLower(text) {
	case "true":
		return "True", true
	case "false":
		return "False", true
	case "null", "none":
		return "None", true
	}
	if numberWords[strings.ToLower(text)] || strings.Contains(text, ",") && separated.MatchString(text) {
		return "", false // "five" and "1,500" may be numbers or text
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && numeral.MatchString(text) {
		return strings.TrimPrefix(strings.Replace("+"+text, "+-", "-", 1), "+"), true
	}
	return quote(p.lits.restore(text)), !strings.ContainsAny(text, "⟦⟧")
}

var numberWords = wordSet(`zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
million half dozen`)

var numeral = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?$`)

func (p *planner) pathOf(m string) string {
	_, text, _ := p.lits.text(m)
	if !strings.HasPrefix(text, "/") {
		text = "/workspace/" + strings.TrimPrefix(text, "./")
	}
	return quote(text)
}

func readCreate(p *planner, m []string, c clause) bool {
	_, path, _ := p.lits.text(m[1])
	if m[2] != "" {
		if c.data != "" || len(c.fields) > 0 {
			return false
		}
		c.data = m[2]
	}
	if !strings.HasSuffix(path, ".json") || len(c.fields) == 0 && c.data == "" {
		return false
	}
	return p.createDocument(p.pathOf(m[1]), c)
}

func readSaveTo(p *planner, m []string, c clause) bool {
	_, path, _ := p.lits.text(m[1])
	if !strings.HasSuffix(path, ".json") {
		return false
	}
	if len(c.fields) > 0 || c.data != "" {
		return p.createDocument(p.pathOf(m[1]), c)
	}
	p.file, p.path = p.pathOf(m[1]), p.pathOf(m[1])
	if p.doc != "" {
		p.saveDocument()
		return true
	}
	if next := p.at; next < len(p.clauses) && (len(p.clauses[next].fields) > 0 || p.clauses[next].data != "") {
		return true // the next clause contains the document
	}
	if !p.onlyNumber(m[0]) {
		return false // it is unclear which result to save
	}
	p.doc = p.fresh("state")
	p.emit("%s = {\"result\": %s}", p.doc, p.number)
	p.saveDocument()
	return true
}

// createDocument emits a document that the clause's bullet list or JSON block contains, and saves it.
func (p *planner) createDocument(path string, c clause) bool {
	literal, ok := "", false
	switch {
	case len(c.fields) > 0:
		var parts []string
		for _, f := range c.fields {
			v, understood := p.value(f.value)
			if !understood {
				return false
			}
			parts = append(parts, quote(f.name)+": "+v)
		}
		literal, ok = "{"+strings.Join(parts, ", ")+"}", true
	case c.data != "":
		literal, ok = p.value(c.data)
	}
	if !ok {
		return false
	}
	p.doc, p.file, p.path = p.fresh("state"), path, path
	p.emit("%s = %s", p.doc, literal)
	p.saveDocument()
	return true
}

func (p *planner) saveDocument() {
	p.helper("save")
	p.emit("save(%s, %s)", p.file, p.doc)
	p.dirty = false
}

func readDocument(p *planner, m []string, _ clause) bool {
	_, path, _ := p.lits.text(m[1])
	if !strings.HasSuffix(path, ".json") {
		return false
	}
	if p.dirty {
		p.saveDocument()
	}
	p.helper("load", "show")
	p.doc, p.file, p.path, p.text = p.fresh("state"), p.pathOf(m[1]), p.pathOf(m[1]), ""
	p.emit("%s = load(%s)", p.doc, p.file)
	return true
}

func (p *planner) sumField(field string) bool {
	if p.doc == "" {
		return false
	}
	variable := p.fresh("total")
	p.emit("%s = sum(%s[%s])", variable, p.doc, p.key(field))
	p.emit("print(%s, %s)", quote("Sum:"), variable)
	p.number = variable
	p.output("sum", variable)
	return true
}

// isSum reports whether the last number is the sum of a field.
func (p *planner) isSum() bool {
	return slices.ContainsFunc(p.outputs,
		func(o output) bool { return o.variable == p.number && strings.HasPrefix(o.key, "sum") })
}

func readSet(p *planner, m []string, _ clause) bool {
	value, ok := p.value(m[2])
	if p.doc == "" || !ok {
		return false
	}
	p.emit("%s[%s] = %s", p.doc, p.key(m[1]), value)
	p.dirty = true
	return true
}

var update = re(`(?:the |its )?` + nameRe + `(?: field| value)? to ` + valueRe + `(?: \([^)]*\))?`)

// readUpdates reads "session to 2, step to 2".
func readUpdates(p *planner, m []string, c clause) bool {
	for part := range strings.SplitSeq(m[1], ",") {
		u := update().FindStringSubmatch(strings.TrimPrefix(strings.TrimSpace(part), "and "))
		if u == nil || !readSet(p, u, c) {
			return false
		}
	}
	return true
}
