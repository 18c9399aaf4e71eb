package rules

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
)

// action is one line of what a form writes: an operation, a name or nothing, and a template of Python. In a template,
// {slot} is the value of a slot in Python, {~slot} its text as written, and {,slot} an optional argument with its name.
// $name is a variable or the function of a tool.
type action struct{ op, name, template string }

var (
	actionLine = regexp.MustCompile(`^(\S+) ?(?:([^(]*?): )?(.*)$`)
	stateFile  = regexp.MustCompile(`(?i)state|workflow`)
	inTemplate = regexp.MustCompile(`\{[,~]?[\w-]+\}|\$\w+`)

	// changedField matches a change of a field of the document, with the field's name.
	changedField = regexp.MustCompile(
		`^(?:put|put_new|change|remove|list_field)\(\w+, (?:field_key\(\w+, )?("(?:[^"\\]|\\.)*")`)
)

// run performs a form's actions. It returns false if the clause does not fit the form after all. "for" runs the actions
// after it with each value of a list in {each}, and also in {others} if there are several.
func (w *writer) run(actions []action, m match) bool {
	for i, a := range actions {
		python, ok := w.fill(a.template, m)
		name, named := w.fill(a.name, m)
		if !ok || !named {
			return false
		}
		if a.op == "for" { // each value of a list, with the rest of the actions
			list := m[python].list
			return !slices.ContainsFunc(list, func(v string) bool {
				one := maps.Clone(m)
				one["each"] = value{py: v, text: v}
				if len(list) > 1 {
					one["others"] = value{text: " " + strings.Trim(v, `"`)}
				}
				return !w.run(actions[i+1:], one)
			})
		}
		if !w.perform(a.op, name, python, m) {
			return false
		}
	}
	return true
}

// check reports whether the clause satisfies an action that is a condition.
func (w *writer) check(op, python string, m match) bool {
	following := w.clauses[w.at:]
	switch op {
	case "need": // variables
		return !slices.ContainsFunc(strings.Fields(python), func(v string) bool {
			name, absent := strings.CutPrefix(v, "!")
			return absent == (w.vars[name] != "")
		})
	case "same": // the open document
		return python == w.vars["file"]
	case "titled": // "the state" is a document whose name says so
		named := func(t token) bool { return t.lower == "state" || t.lower == "workflow" }
		return !slices.ContainsFunc(w.clause.tokens, named) || stateFile.MatchString(w.vars["file"])
	case "unset": // the task gives the document no field with these names
		return !slices.ContainsFunc(strings.Fields(strings.ToLower(python)), func(name string) bool {
			return slices.Contains(w.fields, name)
		})
	case "await": // the next clause has the contents
		return len(following) > 0 && following[0].tokens[len(following[0].tokens)-1].kind == jsonText
	case "alone": // no other clause of the sentence follows
		return !w.goesOn()
	case "bare": // "weather" includes the forecast
		follows := len(following) > 0 && following[0].tokens[0].lower == "if"
		return !follows && !strings.Contains(strings.ToLower(w.request.Task), "forecast")
	case "verb": // "use double_number to triple 5" means another skill
		does := append(strings.Split(strings.ToLower(w.vars["does"]), "_"), "", "number", "numbers")
		return slices.Contains(does, strings.ToLower(m["verb"].text))
	}
	panic("grammar.txt: unknown operation " + op)
}

// perform performs one action. It returns false if the clause does not fit the form after all.
func (w *writer) perform(op, name, python string, m match) bool {
	switch op {
	case "load":
		if w.vars["doc"] != "" && w.vars["file"] != name {
			w.vars["docs"], w.vars["aside"] = "yes", "yes"
		}
		if w.vars["file"] != name {
			w.fields = nil
		}
		if !strings.HasPrefix(python, "load") { // the clause gives the whole document
			w.addFields(m)
		}
		w.vars["doc"], w.vars["file"], w.vars["path"] = w.let("state", python), name, name
		w.vars["documents"] += strings.Replace(name, "/workspace/", "", 1) + ": " + w.vars["doc"] + ", "
		delete(w.vars, "saved")
	case "do", "change":
		w.line("%s", python)
		if field := changedField.FindStringSubmatch(python); field != nil {
			w.fields = append(w.fields, strings.ToLower(field[1]))
		}
		if op == "change" {
			w.save()
		}
	case "save":
		w.save()
	case "let":
		w.let(name, python)
	case "show":
		base, key, _ := strings.Cut(name, " ")
		key = cmp.Or(key, base)
		last := w.let(base, python)
		w.line("show(%s, %s)", quote(key), last)
		w.output(key, last)
	case "out":
		w.output(python, w.vars["last"])
	case "set":
		if (name == "record" || name == "rows") && w.vars[name] != "" {
			w.vars["several"] = "yes"
		}
		w.vars[name] = python
	case "forget":
		for v := range strings.FieldsSeq(python) {
			delete(w.vars, v)
		}
	case "compute":
		w.emitNumber(name, python)
	case "calc":
		return w.calculate(tokenise(python))
	case "if":
		return w.condition(strings.ToLower(python))
	default:
		return w.check(op, python, m)
	}
	return true
}

// addFields records the fields that the values of a clause give the document.
func (w *writer) addFields(m match) {
	for _, slot := range []string{"document", "value"} {
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(m[slot].text), &fields) != nil {
			continue // no object
		}
		for name := range fields {
			w.fields = append(w.fields, strings.ToLower(quote(name)))
		}
	}
}

// fill replaces slots, variables and tools in a template. It returns false if one of them is missing.
func (w *writer) fill(template string, m match) (string, bool) {
	ok := true
	var tool *codegen.Tool
	filled := inTemplate.ReplaceAllStringFunc(template, func(s string) string {
		name := strings.Trim(s, `{}$,~`)
		v := m[name]
		if kind, isTool := w.grammar.tools[name]; s[0] == '$' {
			if v.py = w.vars[name]; isTool {
				v.py, tool = w.resolve(kind)
			}
			ok = ok && v.py != ""
			return v.py
		}
		switch {
		case v.text == "" && v.py == "":
			py := w.grammar.phrases["default"][name]
			ok = ok && (name != "state" || py == w.vars["file"] || !stateFile.MatchString(w.vars["file"]))
			return py
		case s[1] == '~':
			return strings.Trim(v.text, `"`)
		case s[1] == ',':
			has := func(p codegen.Param) bool { return p.Name == name }
			ok = ok && tool != nil && slices.ContainsFunc(tool.Params, has)
			return ", " + name + "=" + v.py
		}
		return v.py
	})
	return filled, ok
}

// condition reads the last clause of the task, in the same sentence, as what to do if the last variable is true.
func (w *writer) condition(label string) bool {
	if !w.goesOn() || w.at+1 < len(w.clauses) {
		return false
	}
	outcome := w.vars["last"]
	w.output(label, outcome)
	outputs, body, vars := len(w.outputs), w.body, w.vars
	w.body, w.vars, w.depth = nil, maps.Clone(vars), w.depth+1
	w.step()
	branch := w.body
	w.body, w.vars, w.depth = body, vars, w.depth-1
	for _, o := range w.outputs[outputs:] {
		w.line("%s = None", o.variable)
	}
	w.line("if %s:", outcome)
	w.body = append(w.body, branch...)
	return len(branch) > 0
}

// save saves the open document.
func (w *writer) save() {
	w.line("save(%s, %s)", w.vars["file"], w.vars["doc"])
	w.vars["saved"] = "check_saved(" + w.vars["file"] + ", " + w.vars["doc"] + ")"
}

// calculate emits the value of an arithmetic expression. It returns false if the tokens are no calculation, and for
// "minus 2" after a number, which may be a number or the rest of a calculation.
func (w *writer) calculate(t []token) bool {
	e := w.parseArithmetic(t)
	sign, _ := w.grammar.prefix("operator", w.clause.tokens)
	if !e.ok || e.single && !t[0].is("(") || sign == "-" && w.vars["number"] != "" {
		return false
	}
	python, calculator := e.python, ""
	if e.simple {
		calculator, _ = w.resolve(w.grammar.tools["calculate"])
	}
	if calculator != "" {
		python = calculator + "(" + quote(e.python) + ")"
	} else if e.refers || isRounded.MatchString(python) {
		python = operand.ReplaceAllString(python, "exact($0)")
	}
	if python != e.python {
		python = "calculated(lambda: " + python + ", " + quote(e.python) + ")"
	}
	w.emitNumber(e.python, python)
	return true
}

// emitNumber emits a Python expression as the last number. The program prints its value after the label.
func (w *writer) emitNumber(label, python string) {
	value := w.let("value", python)
	w.vars["number"] = value
	w.line("print(%s, %s)", quote(label+" ="), value)
	w.output("calculation", value)
}
