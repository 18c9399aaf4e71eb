package rules

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// action is one line of what a form writes: an operation, a name if the operation takes one, and a template of Python.
// In a template, {slot} is the value of a slot in Python, {"slot"} its text as a Python string, {~slot} its text as
// written, and {,slot} an optional argument with its name. $name is a variable or the function of a tool.
type action struct{ op, name, template string }

func parseAction(line string) action {
	op, rest, _ := strings.Cut(line, " ")
	if name, template, ok := strings.Cut(rest, ": "); ok && slices.Contains(namedOps, op) {
		return action{op, name, template}
	}
	return action{op, rest, rest}
}

// namedOps are the operations with a name and ":" before the template.
var namedOps = strings.Fields("new let show compute place set")

// run performs a form's actions. It returns false if the clause does not fit the form after all.
func (w *writer) run(actions []action, m match) bool {
	for i, a := range actions {
		if a.op == "for" { // each value of a list, with the rest of the actions
			for _, v := range m[a.name].list {
				one := maps.Clone(m)
				one["each"] = value{py: v, text: v, list: m[a.name].list}
				if !w.run(actions[i+1:], one) {
					return false
				}
			}
			return true
		}
		if !w.perform(a, m) {
			return false
		}
	}
	return true
}

// perform performs one action. It returns false if the clause does not fit the form after all.
func (w *writer) perform(a action, m match) bool {
	python, ok := w.fill(a.template, m)
	if !ok {
		return false
	}
	switch a.op {
	case "need":
		w.vars["outputs"] = strings.Repeat("yes", len(w.outputs))
		for v := range strings.FieldsSeq(a.name) {
			if name, missing := strings.CutPrefix(v, "!"); missing == (w.vars[name] != "") {
				return false
			}
		}
	case "only": // "the result" can only mean the last number
		plural := slices.ContainsFunc(w.clause.tokens, func(t token) bool { return t.lower == "results" })
		return w.vars["number"] != "" && (!plural || len(w.outputs) == 1)
	case "clear": // "it" means one thing only
		return w.vars["number"] != "" && !w.foundSince()
	case "open", "load":
		if a.op == "load" || w.vars["doc"] == "" || w.vars["file"] != python {
			w.open(map[string]string{"open": "load_or_new(", "load": "load("}[a.op]+python+")", python)
		}
	case "new": // a document of a file
		file, _ := w.fill(a.name, m)
		w.open(python, file)
		w.vars["dirty"] = "yes"
	case "do":
		w.line("%s", python)
	case "change":
		w.line("%s", python)
		w.vars["dirty"] = "yes"
	case "save":
		w.save()
	case "let":
		w.let(a.name, python)
	case "show":
		name, _ := w.fill(a.name, m)
		base, key, ok := strings.Cut(name, " ")
		if !ok {
			key = base
		}
		w.let(base, python)
		w.line("show(%s, %s)", quote(key), w.last)
		w.output(key, w.last)
	case "out":
		w.output(python, w.last)
	case "same": // the open document, if the clause names one
		return python == "" || python == w.vars["file"]
	case "in-order":
		first, known := parseDate(m["a"].text)
		last, known2 := parseDate(m["b"].text)
		return known != known2 || known && !last.Before(first)
	case "in-calendar":
		count, err := strconv.Atoi(python + m["count"].py)
		if m["unit"].py == "7" {
			count *= 7
		}
		day, known := parseDate(m["date"].text)
		year := day.AddDate(0, 0, count).Year()
		return err == nil && (!known || year >= firstYear && year <= 9999)
	case "root":
		e := w.parseArithmetic(tokenise("(" + m["operand"].text + ")"))
		operand := strings.ReplaceAll(e.python, previous, w.vars["number"])
		root := "square root of " + operand
		w.emitNumber(root, "calculated(lambda: square_root("+operand+"), "+quote(root)+")")
		return e.ok && !strings.Contains(operand, "-") && w.refersClearly(e)
	case "place": // the weather of one place
		w.let(a.name, python)
		w.line("show(%s + %s, %s)", quote(a.name+" "), m["each"].py, w.last)
		key := a.name
		if w.vars["record"] = w.last; len(m["each"].list) > 1 {
			w.vars["several"], key = "yes", a.name+" "+strings.Trim(m["each"].py, `"`)
		}
		w.output(key, w.last)
	case "keep": // replaces the rows
		w.keep(python)
	case "calc":
		return w.calculate(tokenise(python))
	case "compute":
		label, _ := w.fill(a.name, m)
		w.emitNumber(label, python)
	case "claim":
		if m["claim"].text != "" {
			w.line("check_claim(%s, %s, %s)", w.vars["number"], m["claim"].py, quote(m["expr"].text))
		}
	case "set":
		w.vars[a.name] = python
	case "forget":
		for v := range strings.FieldsSeq(a.name) {
			delete(w.vars, v)
		}
	case "await": // the next clause has the contents
		return w.at < len(w.clauses) && w.clauses[w.at].tokens[len(w.clauses[w.at].tokens)-1].kind == jsonText
	case "if":
		return w.condition(m)
	case "each":
		return w.each(m)
	case "each-place":
		return w.eachPlace(m)
	case "verb": // "use double_number to triple 5" means another skill
		does := append(strings.Split(strings.ToLower(w.vars["does"]), "_"), "", "number", "numbers")
		return slices.Contains(does, strings.ToLower(m["verb"].text))
	case "tool":
		return w.callTool(m)
	case "cities":
		return w.cities(m)
	case "bare":
		return w.bareWeather()
	default:
		panic("grammar.txt: unknown operation " + a.op)
	}
	return true
}

var inTemplate = regexp.MustCompile(`\{[,"~]?[\w-]+"?\}|\$[\w]+`)

// fill replaces slots, variables and tools in a template. It returns false if one of them is missing.
func (w *writer) fill(template string, m match) (string, bool) {
	ok, tool := true, toolKind{}
	filled := inTemplate.ReplaceAllStringFunc(template, func(s string) string {
		name := strings.Trim(s, `{}$,"~`)
		kind, isTool := w.grammar.tools[name]
		v := m[name]
		switch {
		case s[0] == '{' && v.text == "" && w.grammar.phrases["default"][name] != "":
			return w.grammar.phrases["default"][name]
		case s[0] == '{' && s[1] == '"': // as a string
			return quote(v.text)
		case s[0] == '{' && s[1] == '~': // as written
			return strings.Trim(v.text, "\"")
		case s[0] == '{' && s[1] == ',':
			if v.text == "" {
				return ""
			}
			ok = ok && hasParam(tool.selected, name)
			return ", " + name + "=" + v.py
		case s[0] == '{' && v.py == "":
			return strings.ToLower(v.text)
		case s[0] == '{':
			return v.py
		case isTool:
			var python string
			python, tool = w.resolve(kind)
			ok = ok && python != ""
			return python
		case name == "last":
			return w.last
		case name == "outputs":
			return w.outputs[len(w.outputs)-1].variable
		}
		ok = ok && w.vars[name] != ""
		return w.vars[name]
	})
	return filled, ok
}

// open makes a JSON file the open document, and first saves the previous one if it has changes.
func (w *writer) open(python, file string) {
	w.save()
	w.vars["doc"], w.vars["file"], w.vars["path"] = w.let("state", python), file, file
	delete(w.vars, "text")
	delete(w.vars, "saved")
}

// save saves the open document if it has changes.
func (w *writer) save() {
	if w.vars["dirty"] != "" {
		w.line("save(%s, %s)", w.vars["file"], w.vars["doc"])
		w.vars["saved"] = "check_saved(" + w.vars["file"] + ", " + w.vars["doc"] + ")"
		delete(w.vars, "dirty")
	}
}

// keep replaces the current rows with those that the Python expression selects, also in the outputs.
func (w *writer) keep(python string) {
	old := w.vars["rows"]
	w.vars["rows"] = w.let("kept", python)
	w.line("print(\"Rows kept:\", len(%s), \"of\", len(%s))", w.last, old)
	for i := range w.outputs {
		if w.outputs[i].variable == old {
			w.outputs[i].variable = w.last
		}
	}
}

// refersClearly reports whether an expression that refers to a previous number can only mean the last one.
func (w *writer) refersClearly(e expression) bool {
	return !e.refers || w.vars["number"] != "" && (!e.pronoun || !w.foundSince())
}

// calculate emits the value of an arithmetic expression. It returns false if the tokens are no calculation, or if it is
// not clear to which number they refer.
func (w *writer) calculate(t []token) bool {
	e := w.parseArithmetic(t)
	if !e.ok || e.single && !t[0].is("(") || !w.refersClearly(e) {
		return false
	}
	written := strings.ReplaceAll(e.python, previous, w.vars["number"])
	python := written
	if calculator := w.find(w.grammar.tools["calculate"]); e.simple && calculator != nil {
		python = w.importTool(calculator) + "(" + quote(written) + ")"
	}
	if python != written || strings.ContainsAny(written, "/%") || strings.Contains(written, "**") {
		python = "calculated(lambda: " + python + ", " + quote(written) + ")"
	}
	w.emitNumber(written, python)
	return true
}

// emitNumber emits a Python expression as the last number. The program prints its value after the label.
func (w *writer) emitNumber(label, python string) {
	delete(w.vars, "sum")
	w.vars["number"] = w.let("value", python)
	w.line("print(%s, %s)", quote(label+" ="), w.last)
	w.output("calculation", w.last)
}

// foundSince reports whether there is a later output than the last number, which "it" may mean as well.
func (w *writer) foundSince() bool {
	at := slices.IndexFunc(w.outputs, func(o output) bool { return o.variable == w.vars["number"] })
	return slices.ContainsFunc(w.outputs[at+1:], func(o output) bool { return !o.condition && !o.elsewhere })
}
