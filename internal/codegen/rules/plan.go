// Package rules writes programs without a model. It reads quantities, places, paths, queries and JSON fields out of a
// task, and writes a program only if it understands every clause. Otherwise its error lists what it understood. It
// never guesses a value, and does not understand an ambiguous clause.
//
// Files: split.go (clauses and literals), plan.go (the planner), forms.go (the kinds of clauses, each group of which
// has its file), arithmetic.go, python.go (Python literals and helper functions), tool.go.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/codegen"
)

const (
	maxTask    = 20_000 // bytes
	maxClauses = 100
)

// Write writes a program for a task. The error is a *codegen.CodeRequiredError if a part of the task is not understood.
// It implements codegen.Rules.
func Write(r codegen.Request) (codegen.Program, error) {
	p := newPlanner(r)
	if strings.TrimSpace(r.Task) == "" {
		return codegen.Program{}, p.codeRequired("the task is empty")
	}
	if len(r.Task) > maxTask {
		reason := fmt.Sprintf("the task is %d bytes; the limit of the rules is %d", len(r.Task), maxTask)
		return codegen.Program{}, p.codeRequired(reason)
	}
	clauses, lits := split(r.Task)
	p.lits = lits
	if len(clauses) > maxClauses {
		reason := fmt.Sprintf("the task has %d clauses; the limit of the rules is %d", len(clauses), maxClauses)
		return codegen.Program{}, p.codeRequired(reason)
	}
	p.clauses = clauses
	p.plan()
	if len(p.unknown) > 0 {
		return codegen.Program{}, p.codeRequired("no rule understands a part of the task")
	}
	if len(p.body) == 0 {
		return codegen.Program{}, p.codeRequired("the task contains no request")
	}
	return codegen.Program{
		Code: p.program(), By: codegen.ByRules, Tools: p.used.sorted(), Understood: p.understood,
	}, nil
}

// planner holds the program so far, and what later clauses may refer to. The fields number, record, rows, text and doc
// are names of Python variables.
type planner struct {
	tools   []*tool
	forms   []form
	lits    *literals
	clauses []clause
	at      int // the index of the clause after the one that is being read

	imports map[string]set // the imported tool functions of each module
	used    set            // ids of the imported tools
	modules set            // imported modules of the standard library
	helpers set            // names of the helper functions
	names   map[string]int // how many variables begin with a base name
	body    []string       // lines
	depth   int            // levels of indentation

	number  string // the last number
	record  string // a tool's last result
	several bool   // record is one of several results of a clause
	rows    string // a query's last rows
	text    string // the last text
	path    string // the last file's path, a Python expression
	doc     string // the open JSON document
	file    string // the document's path, a Python expression
	dirty   bool   // the document has changes that are not saved
	skill   string // the imported skill's name

	outputs    []output
	understood []string
	unknown    []string
}

// output is one part of the result.
type output struct {
	key, variable string
	condition     bool // it is the outcome of a condition
	elsewhere     bool // it belongs to the other branch of the condition that is being read
}

func newPlanner(r codegen.Request) *planner {
	p := &planner{
		forms: allForms(), lits: &literals{},
		imports: map[string]set{}, used: set{}, modules: set{}, helpers: set{}, names: map[string]int{},
	}
	for i := range r.Tools {
		p.tools = append(p.tools, &tool{&r.Tools[i]})
	}
	return p
}

func (p *planner) plan() {
	for p.at < len(p.clauses) {
		p.step()
	}
	if p.dirty {
		p.saveDocument()
	}
}

// step reads one clause and, if it is a condition, the clauses of its branches.
func (p *planner) step() {
	c := p.clauses[p.at]
	p.at++
	readable := p.lits.restore(c.text)
	before := len(p.body)
	p.emit("%s", comment(readable))
	for _, f := range p.forms {
		m := f.pattern().FindStringSubmatch(c.text)
		if m == nil {
			continue
		}
		body, depth := len(p.body), p.depth
		if f.read(p, m, c) {
			p.understood = append(p.understood, f.name+": "+readable)
			if len(p.body) == before+1 {
				p.body = p.body[:before] // no comment without code
			}
			return
		}
		p.body, p.depth = p.body[:body], depth
	}
	p.body = p.body[:before]
	p.unknown = append(p.unknown, readable)
	p.emit("%s", comment("TODO: "+readable))
}

func (p *planner) emit(format string, args ...any) {
	p.body = append(p.body, strings.Repeat("    ", p.depth)+fmt.Sprintf(format, args...))
}

// fresh returns an unused variable name: base, base_2, …
func (p *planner) fresh(base string) string {
	p.names[base]++
	if n := p.names[base]; n > 1 {
		return fmt.Sprintf("%s_%d", base, n)
	}
	return base
}

func (p *planner) helper(names ...string) {
	for _, n := range names {
		p.helpers[n] = true
	}
}

// output adds a variable to the result. If the key is taken, a number is appended to it.
func (p *planner) output(key, variable string) {
	for i := 2; slices.ContainsFunc(p.outputs, func(o output) bool { return o.key == key }); i++ {
		key = fmt.Sprintf("%s %d", strings.TrimSuffix(key, fmt.Sprintf(" %d", i-1)), i)
	}
	p.outputs = append(p.outputs, output{key: key, variable: variable})
}

// tool returns the first selected tool that matches, or nil.
func (p *planner) tool(matches func(*tool) bool) *tool {
	if i := slices.IndexFunc(p.tools, matches); i >= 0 {
		return p.tools[i]
	}
	return nil
}

// call imports a tool's function and returns a Python call of it. The arguments are Python text such as name=value.
func (p *planner) call(t *tool, arguments ...string) string {
	if p.imports[t.ModuleName()] == nil {
		p.imports[t.ModuleName()] = set{}
	}
	p.imports[t.ModuleName()][t.FunctionName()] = true
	p.used[t.Server+"/"+t.Name] = true
	return t.FunctionName() + "(" + strings.Join(arguments, ", ") + ")"
}

// program returns the whole program.
func (p *planner) program() string {
	var b strings.Builder
	b.WriteString("# Written by rules. Every value below is in the task or comes from a tool.\n")
	b.WriteString(p.header())
	b.WriteString(strings.Join(p.body, "\n") + "\n\n")
	b.WriteString("result = " + p.result() + "\n")
	return b.String()
}

// header returns the imports and helper functions that the body uses.
func (p *planner) header() string {
	var b, functions strings.Builder
	for _, h := range helpers {
		if p.helpers[h.name] {
			for m := range strings.FieldsSeq(h.imports) {
				p.modules[m] = true
			}
			functions.WriteString("\n\n" + h.code)
		}
	}
	for _, m := range p.modules.sorted() {
		b.WriteString("import " + m + "\n")
	}
	if len(p.modules) > 0 && len(p.imports) > 0 {
		b.WriteByte('\n')
	}
	for _, m := range slices.Sorted(maps.Keys(p.imports)) {
		b.WriteString("from servers." + m + " import " + strings.Join(p.imports[m].sorted(), ", ") + "\n")
	}
	b.WriteString(functions.String())
	b.WriteString("\n\n")
	return b.String()
}

// result returns the program's result as Python: the document if nothing but calculations was output, else the only
// output, else all outputs by key.
func (p *planner) result() string {
	otherThanNumbers := func(o output) bool {
		return !strings.HasPrefix(o.key, "calculation") && !strings.HasPrefix(o.key, "sum")
	}
	if p.doc != "" && !slices.ContainsFunc(p.outputs, otherThanNumbers) {
		return p.doc
	}
	if p.doc != "" {
		p.output("state", p.doc)
	}
	switch len(p.outputs) {
	case 0:
		return "None"
	case 1:
		return p.outputs[0].variable
	}
	var parts []string
	for _, o := range p.outputs {
		parts = append(parts, quote(o.key)+": "+o.variable)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// codeRequired returns the error for a task that is not understood.
func (p *planner) codeRequired(reason string) *codegen.CodeRequiredError {
	e := &codegen.CodeRequiredError{Reason: reason, Understood: p.understood, Unknown: p.unknown}
	for _, t := range p.tools {
		e.Signatures = append(e.Signatures, "from servers."+t.ModuleName()+" import "+t.FunctionName()+"  # "+t.Stub())
		if len(p.understood) == 0 { // the skeleton imports all tools
			p.call(t)
		}
	}
	if len(p.unknown) == 0 {
		p.emit("%s", comment("TODO: "+reason))
	}
	p.emit("raise NotImplementedError(%s)", quote("write the parts marked TODO, then remove this line"))
	e.Skeleton = p.header() + strings.Join(p.body, "\n") + "\n\nresult = " + p.result() + "\n"
	return e
}
