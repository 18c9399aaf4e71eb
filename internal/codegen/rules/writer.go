package rules

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/text"
)

// Write writes a program for a task. The error is a *codegen.CodeRequiredError if a part of the task is not understood.
// It implements codegen.Rules.
func Write(r codegen.Request) (codegen.Program, error) {
	w := &writer{
		request: r, grammar: theGrammar(), imports: map[string]string{}, names: map[string]bool{}, depth: 1,
		vars: map[string]string{"cities": `"` + strings.ReplaceAll(strings.TrimSpace(cityText), "\n", `", "`) + `"`},
	}
	refuse := func(format string, args ...any) (codegen.Program, error) {
		return codegen.Program{}, w.codeRequired(fmt.Sprintf(format, args...))
	}
	if len(r.Task) > maxTask {
		return refuse("the task is %d bytes; the limit of the rules is %d", len(r.Task), maxTask)
	}
	w.request.Task = withoutNumbers(r.Task)
	if w.clauses = split(w.request.Task); len(w.clauses) > maxClauses {
		return refuse("the task has %d steps; the limit of the rules is %d", len(w.clauses), maxClauses)
	}
	for w.at < len(w.clauses) {
		w.step()
	}
	switch {
	case len(w.unknown) > 0:
		words := fmt.Sprintf("%q", w.words[:min(len(w.words), maxWords)])
		return refuse("the rules do not understand %s", strings.ReplaceAll(words[1:len(words)-1], `" "`, `", "`))
	case len(w.body) == 0:
		return refuse("the task contains no request that the rules know")
	}
	return codegen.Program{Code: w.program(), By: codegen.ByRules, Understood: w.understood}, nil
}

const maxWords = 10 // words that a refusal lists

// writer is the state after the clauses read so far.
type writer struct {
	request codegen.Request
	grammar *grammar
	clauses []clause
	at      int    // the index after the clause being read
	clause  clause // being read

	// vars are what later clauses may refer to, as Python: last is the last variable. number, record, rows, text, path
	// and skill are the last ones; number, rows, text and path only until something else is found or changed. sum is
	// the last number that is a sum. several is set if there are several records or rows, and found if "it" can mean
	// something later than the document. doc is the open document, and file its file. documents are all documents by
	// file; docs is set if there are several, and aside until one of them is read by its name. saved is the check of
	// what was saved. table and does are the names of the table of rows and of the skill. cities are those that a
	// program adds.
	vars    map[string]string
	imports map[string]string // name of a tool's function in the program → its import
	names   map[string]bool   // names of variables after "_", keys of the result after " "
	fields  []string          // names, in quotes and lower case, of the fields that the task gives the document
	body    []string
	depth   int // indentation of body

	outputs    []output
	understood []string
	unknown    []string // clauses
	words      []string // words that are not understood
}

// output is one part of the result.
type output struct{ key, variable string }

// step reads one clause, and for a condition also the next one.
func (w *writer) step() {
	c := w.clauses[w.at]
	w.at++
	w.clause = c
	before := len(w.body)
	w.line("%s", comment(c.text))
	m := &matcher{w: w, tokens: c.tokens}
	if f := w.write(m); f != nil {
		w.understood = append(w.understood, f.name+": "+c.text)
		if len(w.body) == before+1 {
			w.body = w.body[:before] // no comment without code
		}
		return
	}
	w.unknown = append(w.unknown, c.text)
	for _, word := range m.notUnderstood() {
		if !slices.Contains(w.words, word) {
			w.words = append(w.words, word)
		}
	}
	w.body = w.body[:before]
	w.line("pass  %s", comment("TODO: "+c.text))
}

// goesOn reports whether the next clause belongs to the sentence of the one being read.
func (w *writer) goesOn() bool {
	return w.at < len(w.clauses) && w.clauses[w.at].sentence == w.clause.sentence
}

// write writes the tokens of a matcher with the first form that fits. If there is none, it returns nil and changes
// nothing.
func (w *writer) write(m *matcher) *form {
	for _, f := range w.grammar.forms {
		if m.match(f.patterns, func(values match) bool {
			saved := *w
			saved.vars, saved.imports, saved.names = maps.Clone(w.vars), maps.Clone(w.imports), maps.Clone(w.names)
			saved.outputs, saved.body = slices.Clone(w.outputs), slices.Clone(w.body)
			if w.run(f.actions, values) {
				return true
			}
			*w = saved
			return false
		}) {
			w.forget(f)
			return f
		}
	}
	return nil
}

// forget removes what later words may no longer refer to: the last number, rows, text and file after a form that finds
// or changes something else, and the document after a form that finds something.
func (w *writer) forget(f *form) {
	has := func(ops ...string) bool {
		return slices.ContainsFunc(f.actions, func(a action) bool { return slices.Contains(ops, a.op) })
	}
	changes, finds := has("load", "change"), has("let", "show", "out", "set", "calc", "compute")
	if changes {
		delete(w.vars, "found")
	} else if finds {
		w.vars["found"] = "yes"
	}
	if !changes && !finds || has("calc", "compute") {
		return
	}
	for _, v := range []string{"number", "rows", "table", "text", "path"} {
		uses := slices.ContainsFunc(f.actions, func(a action) bool {
			return a.op == "set" && a.name == v || a.op == "need" && slices.Contains(strings.Fields(a.template), v)
		})
		if !uses && (v != "path" || w.vars[v] != w.vars["file"]) {
			delete(w.vars, v)
		}
	}
}

func (w *writer) line(format string, args ...any) {
	w.body = append(w.body, strings.Repeat("    ", w.depth)+fmt.Sprintf(format, args...))
}

// let emits a new variable with a value, and returns the variable's name.
func (w *writer) let(base, python string) string {
	name := w.unused(base, "_")
	w.vars["last"] = name
	w.line("%s = %s", name, python)
	return name
}

// output adds a variable to the result.
func (w *writer) output(key, variable string) {
	w.outputs = append(w.outputs, output{w.unused(key, " "), variable})
}

// unused returns the first of base, base_2, … (with _ as the separator of variables, and a space as that of keys) that
// is not in use yet.
func (w *writer) unused(base, separator string) string {
	name := base
	for n := 2; w.names[separator+name] || separator == "_" && (w.imports[name] != "" || reserved(name)); n++ {
		name = fmt.Sprint(base, separator, n)
	}
	w.names[separator+name] = true
	return name
}

//go:embed prelude.py
var preludeText string

// prelude returns the functions of prelude.py in their order: each may use earlier ones. A program contains those that
// it uses.
var prelude = sync.OnceValue(func() []function {
	var out []function
	for code := range strings.SplitSeq(preludeText, "\n\n\n") {
		name := regexp.MustCompile(`\w+\(`).FindString(code)
		called := regexp.MustCompile(`\b` + regexp.QuoteMeta(name))
		out = append(out, function{strings.TrimSuffix(name, "("), strings.TrimSpace(code) + "\n", called})
	}
	return out
})

// function is a function or a class of prelude.py.
type function struct {
	name, code string
	called     *regexp.Regexp // matches code that uses it
}

var (
	modules = strings.Fields(
		"csv datetime fnmatch fractions importlib inspect io json math pathlib re sqlite3 statistics")
	moduleUse = regexp.MustCompile(`\b(?:` + strings.Join(modules, "|") + `)\.`)
)

// reserved reports whether a name is that of a module or function of the prelude, which a variable must not hide.
func reserved(name string) bool {
	return slices.Contains(modules, name) ||
		slices.ContainsFunc(prelude(), func(f function) bool { return f.name == name })
}

// program returns the whole program: the imports, the function main, and the functions of the prelude that it uses.
func (w *writer) program() string {
	w.line("return %s", w.result())
	body := "\n\ndef main():\n" + strings.Join(w.body, "\n") + "\n"
	const run = "try:\n    result = main()\nexcept Exception as error:\n    raise explained(error) from None\n"
	used := body + functionsOf(body+run)
	head := []string{"# Written by rules: each value in main is in the task, or comes from the workspace or a tool."}
	uses := moduleUse.FindAllString(used, -1)
	for _, m := range modules {
		if slices.Contains(uses, m+".") {
			head = append(head, "import "+m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.imports)) {
		head = append(head, w.imports[name])
	}
	return strings.Join(head, "\n") + "\n" + used + "\n\n" + run
}

// functionsOf returns the functions of the prelude that some code uses, and those that they use.
func functionsOf(code string) (functions string) {
	for _, f := range slices.Backward(prelude()) {
		if f.called.MatchString(code + functions) {
			functions = "\n\n" + f.code + functions
		}
	}
	return functions
}

// result returns the program's result: the document if the task is about one, or all documents by file, else the only
// output, else all outputs by name.
func (w *writer) result() string {
	if doc := w.vars["doc"]; doc != "" {
		if w.vars["docs"] != "" {
			doc = "{" + strings.TrimSuffix(w.vars["documents"], ", ") + "}"
		}
		if !slices.ContainsFunc(w.outputs, func(o output) bool { return !isStep.MatchString(o.key) }) {
			return doc
		}
		w.output("state", doc)
	}
	var parts []string
	for _, o := range w.outputs {
		parts = append(parts, quote(o.key)+": "+o.variable)
	}
	switch len(parts) {
	case 0:
		return "None"
	case 1:
		return w.outputs[0].variable
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// isStep matches the keys of outputs that are steps towards a document.
var isStep = regexp.MustCompile(`^(?:calculation|sum)(?: \d+)?$`)

// codeRequired returns the error for a task that is not understood.
func (w *writer) codeRequired(reason string) *codegen.CodeRequiredError {
	e := &codegen.CodeRequiredError{Reason: reason, Understood: w.understood, Unknown: w.unknown}
	for i := range w.request.Tools {
		t := &w.request.Tools[i]
		e.Signatures = append(e.Signatures, importOf(t)+"  # "+t.Stub())
		if len(w.understood) == 0 { // the skeleton begins with the tools
			w.importTool(t)
		}
	}
	w.line("raise NotImplementedError(\"write the parts marked TODO, then remove this line\")")
	e.Skeleton = w.program()
	return e
}

// comment returns any text as one line of comment.
func comment(s string) string { return "# " + text.Truncate(text.Printable(text.OneLine(s)), 160) }
