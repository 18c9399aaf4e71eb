package codegen

import (
	"cmp"
	"fmt"
	"strings"
)

// Tool describes a tool to a writer. Programs import it as `from servers.<Module> import <Function>`.
type Tool struct {
	Server, Name     string
	Module, Function string // Python names; default Server and Name
	Signature        string // one line
	Doc              string // docstring; untrusted
	Params           []Param
}

// Param is one parameter of a tool, in the order of the schema.
type Param struct {
	Name, Type string
	Required   bool
	Enum       []string
}

// ModuleName is the Python module below servers that holds the tool.
func (t *Tool) ModuleName() string { return cmp.Or(t.Module, t.Server) }

// FunctionName is the Python function of the tool.
func (t *Tool) FunctionName() string { return cmp.Or(t.Function, t.Name) }

// Stub is the signature in one line of Python: "..." is the default of an optional parameter.
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

// Skill is a saved function. Programs import it as `from skills.<Name> import <Entry>`.
type Skill struct {
	Name, Signature, Description string
	Entry                        string // the function; default run
}

// Request is a task and what its program may use.
type Request struct {
	Task        string
	Tools       []Tool   // best match first
	Skills      []Skill  // nil: unknown; empty: none
	Files       []string // paths in the workspace, for the prompt
	Inputs      string   // JSON of the variable `inputs`; empty without inputs
	Checkpoints []string // notes of the session's earlier tasks, for the prompt
}

// The values of generated_by in a result.
const (
	ByModel = "llm"
	ByRules = "rules"
)

// Program is a program and its origin.
type Program struct {
	Code       string
	By         string
	Tools      []string // ids of the imported tools, as far as the writer knows
	Understood []string // how the rules read the task, one line a clause
	Usage      Usage
	Fallback   string // why the model did not write it; empty when it did or there is none
}

// CodeRequiredError reports that the rules did not understand a task: status blocked, code code_required. A model of
// the caller can complete Skeleton in one more call.
type CodeRequiredError struct {
	Reason     string
	Understood []string
	Unknown    []string // clauses that match no rule
	Signatures []string // of the selected tools
	Skeleton   string   // the unfinished program, with a TODO for each unknown clause
}

func (e *CodeRequiredError) Error() string {
	if len(e.Unknown) == 0 {
		return "code required: " + e.Reason
	}
	return fmt.Sprintf("code required: %s: %q", e.Reason, e.Unknown[0])
}
