// Package guardrails judges programs by rules: the built-in rules, and the operator's. The operator's conditions judge
// inputs, arguments of tool calls, and results.
//
// A rule looks at facts that the parser in the sandbox reports, so that comments, strings and names that merely look
// alike raise no finding. Only the operator's patterns are matched against the text. The rules advise, and refuse early
// what would fail or surprise later. They do not confine a program, because a program can be written to deceive them.
// The sandbox is the security boundary.
package guardrails

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/patterns"
)

// Level says what happens if a program has findings.
type Level int

// Levels, from the weakest.
const (
	Off    Level = iota // programs are not judged
	Advise              // findings are warnings in the result
	Strict              // a program with a finding does not run
)

// Program is what the rules know about a program. Names are dotted and resolved by the program's imports.
type Program struct {
	Code       string
	Imports    []Import
	Calls      []Use
	Attributes []Use // attributes of Python's internals, and variables whose names begin with two underscores
	References []Use // uses, other than calls, of imported names and of some built-in functions
	Paths      []Path
	Signs      []Sign
	Truncated  bool // a list was truncated
	Network    bool // the task may reach hosts

	uses []Use // Calls and References with unqualified names; Rules.Program sets it
}

// Import is an imported module, with the names that a from-import imports from it.
type Import struct {
	Module string
	Names  []string
	Line   int
}

// Use is a name used on a line.
type Use struct {
	Name string
	Line int
}

// Path is a path or URL that is passed to a function. It is constant, or ends in "*" after constant directories.
type Path struct {
	Name, Path string
	Write      bool // the function changes what the path names
	Line       int
}

// Sign is a suspicious construct, such as an endless loop.
type Sign struct {
	Kind, Name string
	Line       int
}

// Finding says which rule a program or its data break, and where.
type Finding struct {
	Rule    string
	Line    int    // 0 if the finding is about the whole program, or about data
	Message string // what is wrong
	Hint    string // what to do instead
}

// String returns the finding as a sentence without its line: what the program does, and what to do instead.
func (f Finding) String() string { return "the program " + f.Message + ": " + f.Hint }

// Options are the operator's settings for the fleet or for a tenant.
type Options struct {
	Level           Level
	BlockedImports  []string // modules, including their submodules
	BlockedCalls    []string // dotted names, such as "os.remove"
	BlockedPatterns []string // regular expressions (RE2) that are matched against the program's text
	Conditions      []Condition
}

// Rules judge programs. They are safe for concurrent use.
type Rules struct {
	Level    Level
	imports  []string
	calls    []string
	patterns []*regexp.Regexp

	conditions []condition
}

// New combines the rules of a fleet with a tenant's: the stricter level applies, and the lists are concatenated. It
// returns an error, of errors.Join, for the rules that are invalid, or that would never or always apply.
func New(fleet, tenant Options) (*Rules, error) {
	r := &Rules{
		Level:   max(fleet.Level, tenant.Level),
		imports: slices.Concat(fleet.BlockedImports, tenant.BlockedImports),
		calls:   slices.Concat(fleet.BlockedCalls, tenant.BlockedCalls),
	}
	errs := append(checkNames("import", r.imports), checkNames("call", r.calls)...)
	for i, name := range r.calls {
		r.calls[i] = unqualified(name)
	}
	for _, p := range slices.Concat(fleet.BlockedPatterns, tenant.BlockedPatterns) {
		re, err := regexp.Compile(p)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("blocked pattern %q: %w", p, patterns.Reason(err)))
		case re.MatchString(""):
			errs = append(errs, fmt.Errorf("blocked pattern %q: it matches the empty text, and so every program", p))
		default:
			r.patterns = append(r.patterns, re)
		}
	}
	for _, c := range slices.Concat(fleet.Conditions, tenant.Conditions) {
		compiled, err := compile(c)
		if err != nil {
			errs = append(errs, err)
		}
		r.conditions = append(r.conditions, compiled)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// unqualified returns the name of a function without the module builtins: open and builtins.open are the same function.
func unqualified(name string) string { return strings.TrimPrefix(name, "builtins.") }

// dotted is the form of the names of modules and functions.
var dotted = regexp.MustCompile(`^[\pL_][\pL\pM\pN_]*(\.[\pL_][\pL\pM\pN_]*)*$`)

// checkNames returns an error for each name that no program can import or call.
func checkNames(kind string, names []string) (errs []error) {
	for _, name := range names {
		if !dotted.MatchString(name) {
			errs = append(errs,
				fmt.Errorf("blocked %s %q: want a dotted name such as os.path, without * and ()", kind, name))
		}
	}
	return errs
}

// MaxFindings bounds the findings about a program, and those that a task's result lists about the program, its inputs
// and its tool calls together.
const MaxFindings = 100

// Program returns a program's findings, ordered by line: at most one per rule and line, and 100 in all. It returns nil
// if the level is Off.
func (r *Rules) Program(p Program) []Finding {
	if r.Level == Off {
		return nil
	}
	p.uses = slices.Concat(p.Calls, p.References)
	for i, u := range p.uses {
		p.uses[i].Name = unqualified(u.Name)
	}
	var found []Finding
	for _, rule := range builtin {
		for _, f := range rule.find(p) {
			f.Rule, f.Hint = rule.name, rule.hint
			found = append(found, f)
		}
	}
	found = append(found, r.configured(p)...)
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	found = unique(found)
	return found[:min(len(found), MaxFindings)]
}

// unique drops each finding that has the rule and line of an earlier one.
func unique(found []Finding) []Finding {
	type key struct {
		rule string
		line int
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(found, func(f Finding) bool {
		k := key{f.Rule, f.Line}
		if seen[k] {
			return true
		}
		seen[k] = true
		return false
	})
}

// configured returns the findings of the operator's rules.
func (r *Rules) configured(p Program) []Finding {
	var found []Finding
	for _, i := range p.Imports {
		if m, ok := importOf(i, r.imports); ok {
			found = append(found, Finding{
				Rule: "blocked_import", Line: i.Line, Message: "imports " + m, Hint: "the operator blocks this module",
			})
		}
	}
	for _, u := range slices.Concat(p.Calls, p.References) {
		if slices.Contains(r.calls, unqualified(u.Name)) || within(r.imports, u.Name, ".") {
			found = append(found, Finding{
				Rule: "blocked_call", Line: u.Line, Message: "uses " + u.Name,
				Hint: "the operator blocks this function",
			})
		}
	}
	for _, re := range r.patterns {
		if at := re.FindStringIndex(p.Code); at != nil {
			found = append(found, Finding{
				Rule: "blocked_pattern", Line: 1 + strings.Count(p.Code[:at[0]], "\n"),
				Message: "contains text that matches " + re.String(), Hint: "the operator blocks this pattern",
			})
		}
	}
	return found
}

// importOf returns the first name that an import may load and that is one of modules or in one of them. "from urllib
// import request" may load urllib and urllib.request.
func importOf(i Import, modules []string) (string, bool) {
	if within(modules, i.Module, ".") {
		return i.Module, true
	}
	for _, n := range i.Names {
		if name := i.Module + "." + n; within(modules, name, ".") {
			return name, true
		}
	}
	return "", false
}

// within reports whether name is one of parents, or begins with one and the separator.
func within(parents []string, name, separator string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool {
		return name == parent || strings.HasPrefix(name, parent+separator)
	})
}
