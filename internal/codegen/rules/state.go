package rules

import (
	"regexp"
	"strings"
)

// The state is a JSON file. Most clauses read or write one of its fields and leave the others unchanged.

const (
	stateRe = `(?:(?:the |my |our |this )?(?:workflow |session |shared |saved |current )?state(?: file)?` +
		`|(?:the )?(?:file |state file )?` + pathRe + `)`
	literalRe = `(⟦[qj]\d+⟧|-?\d+(?:\.\d+)?|true|false|null)`
	putVerb   = `(?:save|store|put|write|record|keep)`
	showVerb  = `(?:read|load|open|get|fetch|show|display|print)`
	resultRe  = `(?:(?:the |that |this )?(?:last |previous )?(?:results?|sum|product|answer|value|number)` +
		`(?: of (?:the|this|that) calculation)?|it|that|this)`
	changeVerb = `(increment|increase|decrement|decrease|reduce)`
	keyRe      = `(?:the )?(?:key |name |field )?` + nameRe
)

var stateForms = []form{
	{"save field", re(putVerb + ` (?:the )?(?:number |value |text |string )?` + literalRe + ` (?:as|under) ` + keyRe +
		` (?:in|into|to) ` + stateRe), func(p *planner, m []string, _ clause) bool {
		return p.setField(m[3], m[2], m[1])
	}},
	{"save field", re(putVerb + ` (?:the )?(?:number |value |text |string )?` + literalRe + ` (?:in|into|to) ` +
		stateRe + ` (?:as|under) ` + keyRe), func(p *planner, m []string, _ clause) bool {
		return p.setField(m[2], m[3], m[1])
	}},
	{
		"save result", re(putVerb + ` ` + resultRe + ` (?:as|under) ` + keyRe + ` (?:in|into|to) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			return p.onlyNumber(m[0]) && p.assignField(m[2], m[1], " = "+p.number)
		},
	},
	{
		"save result", re(putVerb + ` ` + resultRe + ` (?:in|into|to) ` + stateRe + ` (?:as|under) ` + keyRe),
		func(p *planner, m []string, _ clause) bool {
			return p.onlyNumber(m[0]) && p.assignField(m[1], m[2], " = "+p.number)
		},
	},
	{"set field", re(`(?:set|update|change) ` + keyRe + `(?: field| value)? (?:to|=) ` + valueRe + ` (?:in|of) ` +
		stateRe), func(p *planner, m []string, _ clause) bool {
		return p.setField(m[3], m[1], m[2])
	}},
	{
		"set field", re(putVerb + ` ` + keyRe + ` ?[=:] ?` + literalRe + ` (?:in|into|to) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			return p.setField(m[3], m[1], m[2])
		},
	},
	{
		"set field", re(putVerb + ` (?:the )?` + nameRe + ` ` + literalRe + ` (?:in|into|to) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			// "save number 5" has no name
			return !kindWords[strings.ToLower(m[1])] && p.setField(m[3], m[1], m[2])
		},
	},
	{"increment field", re(changeVerb + ` ` + keyRe + `(?: field)? (?:in|of) ` + stateRe +
		`(?: by (\d+(?:\.\d+)?))?`), func(p *planner, m []string, _ clause) bool {
		return p.changeField(m[3], m[2], m[1], m[4])
	}},
	{
		"increment field", re(changeVerb + ` ` + keyRe + `(?: field)? by (\d+(?:\.\d+)?) (?:in|of) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			return p.changeField(m[4], m[2], m[1], m[3])
		},
	},
	{
		"add to field", re(`add (-?\d+(?:\.\d+)?) to ` + keyRe + `(?: field)? (?:in|of) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			return numeral.MatchString(m[1]) && p.assignField(m[3], m[2], " += "+m[1])
		},
	},
	{"append to field", re(`(?:append|push|add) ` + literalRe + ` (?:to|onto|into) ` + keyRe +
		` (?:list|array) (?:in|of) ` + stateRe), func(p *planner, m []string, _ clause) bool {
		value, ok := p.value(m[1])
		return ok && p.assignField(m[3], m[2], ".append("+value+")")
	}},
	{
		"remove field", re(`(?:delete|remove|drop) ` + keyRe + `(?: field)? (?:from|in|of) ` + stateRe),
		func(p *planner, m []string, _ clause) bool {
			if stateNouns[strings.ToLower(m[1])] || !p.openState(m[2]) {
				return false
			}
			p.emit("del %s[%s]", p.doc, p.key(m[1]))
			p.dirty = true
			return true
		},
	},
	{"read field", re(`(?:` + showVerb + `|what is|what's) (?:the )?(?:value of |field |key )*(?:the )?` + nameRe +
		`(?: field| value)? (?:from|in|of) ` + stateRe), func(p *planner, m []string, _ clause) bool {
		return p.readField(m[2], m[1])
	}},
	{
		"read state", re(showVerb + ` (?:the |my |our )?` +
			`(?:workflow |session |shared |saved |current |whole |entire )*state(?: file)?` + session),
		func(p *planner, _ []string, _ clause) bool {
			if p.doc == "" {
				p.doc, p.file = p.fresh("state"), quote("/workspace/state.json")
				p.helper("load")
				p.emit("%s = load(%s)", p.doc, p.file)
			}
			p.helper("show")
			p.emit("show(%s, %s)", quote("State"), p.doc)
			return true
		},
	},
}

// kindWords name kinds of values, and stateNouns name contents of files. They are not names of fields.
var (
	kindWords  = wordSet("number value text string result results word message words field key")
	stateNouns = wordSet("content contents data text file state it all everything json document fields keys " +
		"value values result results")
)

var plural = regexp.MustCompile(`(?i)\bresults\b`)

// onlyNumber reports whether "the result" in a clause can only mean the last number.
func (p *planner) onlyNumber(clause string) bool {
	several := plural.MatchString(clause) && len(p.outputs) > 1
	return p.number != "" && p.record == "" && p.rows == "" && p.text == "" && !several
}

// stateFile returns the path of the JSON file that a mark names, or of the workspace's state document if path is empty.
// It returns false for other files.
func (p *planner) stateFile(path string) (file string, ok bool) {
	if path == "" {
		return quote("/workspace/state.json"), true
	}
	_, name, _ := p.lits.text(path)
	return p.pathOf(path), strings.HasSuffix(name, ".json")
}

// openState opens a JSON file. A missing file counts as an empty object.
func (p *planner) openState(path string) bool {
	file, ok := p.stateFile(path)
	if !ok {
		return false
	}
	if p.doc != "" && p.file == file {
		return true
	}
	if p.dirty {
		p.saveDocument()
	}
	p.helper("load", "load_or_new")
	p.doc, p.file, p.path = p.fresh("state"), file, file
	p.emit("%s = load_or_new(%s)", p.doc, p.file)
	return true
}

func (p *planner) setField(path, name, text string) bool {
	value, ok := p.value(text)
	return ok && p.assignField(path, name, " = "+value)
}

// assignField changes one field; change is the Python text after it, as in " += 1".
func (p *planner) assignField(path, name, change string) bool {
	if !p.openState(path) {
		return false
	}
	p.emit("%s[%s]%s", p.doc, p.key(name), change)
	p.dirty = true
	return true
}

// changeField adds a number to a field or subtracts it. The verbs increment and decrement need no number: the default
// is 1.
func (p *planner) changeField(path, name, verb, by string) bool {
	verb = strings.ToLower(verb)
	if by == "" && strings.HasSuffix(verb, "crement") {
		by = "1"
	}
	return numeral.MatchString(by) && p.assignField(path, name, " "+changeSign(verb)+"= "+by)
}

// readField prints one field and adds it to the result. If the field is missing, the program fails.
func (p *planner) readField(path, name string) bool {
	file, ok := p.stateFile(path)
	if stateNouns[strings.ToLower(name)] || !ok {
		return false
	}
	document := p.doc
	if p.doc == "" || p.file != file {
		document = "load(" + file + ")"
		p.helper("load")
	}
	if _, text, ok := p.lits.text(name); ok {
		name = text
	}
	variable := p.fresh("field")
	p.helper("show")
	p.emit("%s = %s[%s]", variable, document, quote(name))
	p.emit("show(%s, %s)", quote(name), variable)
	p.output(name, variable)
	return true
}
