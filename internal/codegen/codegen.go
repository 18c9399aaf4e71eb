package codegen

import (
	"fmt"
	"strings"
)

// Tool is what a writer needs to know of a tool. It is imported as `from servers.<Module> import <Function>`.
type Tool struct {
	Server, Name     string
	Module, Function string // Python names; default Server and Name
	Signature        string // one line
	Doc              string // of the generated module; untrusted
	Params           []Param
}

// Param is one parameter of a tool, in the order of the schema.
type Param struct {
	Name, Type string
	Required   bool
	Enum       []string
}

func (t *Tool) module() string   { return orElse(t.Module, t.Server) }
func (t *Tool) function() string { return orElse(t.Function, t.Name) }

// signature is one line of Python, as stubs have it: "..." is the default of an optional parameter.
func (t *Tool) signature() string {
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
	return t.function() + "(" + strings.Join(params, ", ") + ")"
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Skill is a saved program part: `from skills.<Name> import <Entry>`.
type Skill struct {
	Name, Signature, Description string
	Entry                        string // default run
}

// Request is a task and what its program may use.
type Request struct {
	Task        string
	Tools       []Tool   // the likeliest first
	Skills      []Skill  // nil: not known; empty: none
	Files       []string // of the workspace, for the prompt
	Inputs      string   // JSON of the variable `inputs`, empty when there is none
	Checkpoints []string // notes of earlier tasks of the session, for the prompt
}

// Who wrote a program: the values of a result's generated_by.
const (
	ByModel = "llm"
	ByRules = "rules"
)

// Program is a program and how it came about.
type Program struct {
	Code       string
	By         string
	Tools      []string // ids of the tools it imports, as far as its writer knows
	Understood []string // the rules' reading of the task, one line a clause
	Usage      Usage
	Fallback   string // why the rules wrote it although there is a model
}

// CodeRequiredError says that the rules did not understand a task: status blocked, code code_required. The caller's own
// model can finish Skeleton in one more call.
type CodeRequiredError struct {
	Reason     string
	Understood []string
	Unknown    []string // clauses that no rule understands
	Signatures []string // of the selected tools
	Skeleton   string   // the program as far as it goes, with a TODO for each unknown clause
}

func (e *CodeRequiredError) Error() string {
	if len(e.Unknown) == 0 {
		return "code required: " + e.Reason
	}
	return fmt.Sprintf("code required: %s: %q", e.Reason, e.Unknown[0])
}
