package codegen

import (
	"cmp"
	"strings"
)

// Tool describes a tool to a writer. Programs import it as `from servers.<Module> import <Function>`.
type Tool struct {
	Server, Name     string
	Module, Function string  // the Python names; Server and Name by default
	Signature        string  // in one line of Python; empty if only Params is known
	Doc              string  // the docstring; untrusted
	Params           []Param // in the order of the schema
}

// Param is one parameter of a tool.
type Param struct {
	Name, Type string
	Required   bool
	Enum       []string
}

// ModuleName returns the Python module below servers that contains the tool.
func (t *Tool) ModuleName() string { return cmp.Or(t.Module, t.Server) }

// FunctionName returns the name of the tool's Python function.
func (t *Tool) FunctionName() string { return cmp.Or(t.Function, t.Name) }

// Stub returns the signature in one line of Python, with "..." for the default of an optional parameter.
func (t *Tool) Stub() string {
	if t.Signature != "" {
		return strings.ReplaceAll(t.Signature, " = UNSET", " = ...")
	}
	var params []string
	for _, p := range t.Params {
		s := p.Name
		if p.Type != "" {
			s += ": " + p.Type
		}
		if !p.Required {
			s += " = ..."
		}
		params = append(params, s)
	}
	return t.FunctionName() + "(" + strings.Join(params, ", ") + ")"
}

// Skill describes a saved program to a writer. Programs import it as `from skills.<Module> import run`. All fields are
// untrusted.
type Skill struct {
	Module, Signature, Description string
}

// Request is a task and what its program may use.
type Request struct {
	Task   string
	Tools  []Tool   // the best match first
	Skills []Skill  // programs that were saved before
	Files  []string // paths in the workspace, for the prompt
	Inputs string   // the JSON value of the variable `inputs`; empty for a task without inputs
}

// The values of generated_by in a result.
const (
	ByModel = "llm"
	ByRules = "rules"
)

// Program is a program and its origin.
type Program struct {
	Code       string
	By         string   // ByModel or ByRules
	Understood []string // how the rules read the task: one line for each clause
	Usage      Usage
	Fallback   string // why the model wrote no program, so that the rules were asked; empty without a failure
}

// CodeRequiredError reports that the rules did not understand a task. The task then ends with the status blocked and
// the error code code_required. The caller's model can complete Skeleton in one more call.
type CodeRequiredError struct {
	Reason     string   // names the words that are not understood
	Understood []string // as in Program
	Unknown    []string // the clauses that match no rule
	Signatures []string // for each selected tool, its import and its signature
	Skeleton   string   // the unfinished program, with a TODO for each unknown clause
}

func (e *CodeRequiredError) Error() string { return "code required: " + e.Reason }
