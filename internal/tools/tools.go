// Package tools defines tools and their catalogue. The catalogue is a directory servers/ of Python
// modules, which this package reads, lints and publishes as immutable versions. It does not call tools
// (package broker), connect to MCP servers (package mcp) or write modules (package pygen). The key
// types are Tool and Catalogue.
//
// A server is a directory, a tool is a file in it:
//
//	servers/calculator/add.py             the function add; a generated file starts with a header
//	servers/calculator/definitions.json   the definitions that the MCP server listed (generated)
//	servers/approvals.json                the definitions that an operator approved
package tools

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// Definition describes one tool, as its MCP server lists it. It is untrusted: check or quote every part
// of it that goes into a file name, Python code or a log.
type Definition struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`

	Problem string `json:"-"` // why the tool could not be decoded; then only its name is known
}

// Annotations are a server's claims about the effects of a tool. The definition's hash covers them:
// a claim counts only once it is approved.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint,omitempty"`
	Idempotent  bool   `json:"idempotentHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"` // nil means true
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`   // nil means true
}

// Mutates reports whether a call may change something, that is, whether the tool is not read-only.
func (a Annotations) Mutates() bool { return !a.ReadOnly }

// Destroys reports whether a call may delete or overwrite something. A mutating tool may, unless its
// annotations deny it.
func (a Annotations) Destroys() bool {
	return !a.ReadOnly && (a.Destructive == nil || *a.Destructive)
}

// Repeatable reports whether repeating a call has no further effect.
func (a Annotations) Repeatable() bool { return a.ReadOnly || a.Idempotent }

// Effects describes the claims in English.
func (a Annotations) Effects() string {
	var out []string
	switch {
	case a.ReadOnly:
		out = append(out, "read-only")
	case a.Destroys():
		out = append(out, "may delete or overwrite")
	default:
		out = append(out, "adds, but deletes nothing")
	}
	if a.Idempotent && !a.ReadOnly {
		out = append(out, "repeating a call changes nothing more")
	}
	if a.OpenWorld == nil || *a.OpenWorld {
		out = append(out, "may reach the outside world")
	}
	return strings.Join(out, "; ")
}

// Hash returns "sha256:" and the hex digest of the definition's canonical JSON: keys are sorted, and
// numbers keep their text. It covers all fields.
func (d Definition) Hash() string {
	canon := func(raw json.RawMessage) any {
		if len(raw) == 0 {
			return nil
		}
		v, err := DecodeJSON(raw)
		if err != nil {
			return string(raw) // invalid JSON is hashed as it is
		}
		return v
	}
	data, err := json.Marshal(map[string]any{
		"name": d.Name, "title": d.Title, "description": d.Description, "annotations": d.Annotations,
		"inputSchema": canon(d.InputSchema), "outputSchema": canon(d.OutputSchema),
	})
	if err != nil {
		panic(fmt.Sprintf("tools: a decoded JSON value does not encode: %v", err))
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Tool is one tool of the catalogue: a Python function, and the definition of the MCP tool that it
// calls, if any. A hand-written tool has neither Hash nor schemas.
type Tool struct {
	Server string `json:"server"` // the server's name in calls
	Name   string `json:"name"`   // the name in calls: the MCP tool's, or else the function's
	State  State  `json:"state"`

	Module    string `json:"module"`          // servers.calculator.add
	Function  string `json:"function"`        // add
	Signature string `json:"signature"`       // add(a: float, b: float) -> float
	Types     string `json:"types,omitempty"` // Python source of the classes in a generated signature
	Doc       string `json:"doc,omitempty"`
	Path      string `json:"path"` // relative to servers/, with slashes

	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
	Hash         string          `json:"hash,omitempty"`
	Exposed      bool            `json:"exposed,omitempty"` // also a tool of the MCP bridge

	About About `json:"-"` // the server's description of itself
	def   Definition
}

// Definition returns the tool's definition exactly as its MCP server listed it, for Approvals.Approve.
// The definition of a hand-written tool is the zero value.
func (t Tool) Definition() Definition { return t.def }

// State decides whether programs may call a tool.
type State string

// The states of a tool.
const (
	Local      State = "local"      // a hand-written module: it runs in the box and needs no approval
	Pending    State = "pending"    // the definition was never approved
	Approved   State = "approved"   // this definition is approved
	Changed    State = "changed"    // a different definition of the tool is approved
	Registered State = "registered" // a process with the tenant's credentials serves it
)

// Usable reports whether programs may call the tool.
func (t Tool) Usable() bool {
	return t.State == Local || t.State == Approved || t.State == Registered
}

// ID returns "server/tool", the form that allow-lists, results and the command line use.
func (t Tool) ID() string { return t.Server + "/" + t.Name }

// Names returns the tool's names in the form server/tool: ID, and the one that programs import, if it is another one.
// Policies, rates and guardrails apply to both; allow-lists name tools by their ID.
func (t Tool) Names() []string {
	list := []string{t.ID()}
	if imported := t.Package() + "/" + t.Function; t.Module != "" && imported != list[0] {
		list = append(list, imported)
	}
	return list
}

// Import returns the Python statement that imports the tool's function.
func (t Tool) Import() string { return "from servers." + t.Package() + " import " + t.Function }

// Package returns the tool's directory below servers/: the Python name of its server.
func (t Tool) Package() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Module, "servers."), ".")
	return name
}

// Summary returns the first line of the description or, without one, of the docstring.
func (t Tool) Summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(t.Description, t.Doc)), "\n")
	return strings.TrimSpace(line)
}

// Broken is a file of the catalogue that cannot be a tool, with the reason.
type Broken struct {
	Path    string `json:"path"` // relative to servers/, with slashes
	Line    int    `json:"line"` // from 1, or 0 if the problem has no line
	Message string `json:"message"`
}

func (b Broken) String() string { return fmt.Sprintf("%s:%d: %s", b.Path, b.Line, b.Message) }

// Listing holds the tools of one version of the catalogue. It is immutable.
type Listing struct {
	Tools    []Tool        // sorted by server and name
	Broken   []Broken      // sorted by path
	Warnings []LintWarning // of Lint
	Skills   []Skill       // that programs can import, sorted by name; not part of Tools
	packages []string      // directories below servers/ with files, also those without a tool; see Extend
	byID     map[string]int
}

// NewListing returns a listing of tools and broken files; it sorts both slices in place.
func NewListing(all []Tool, broken ...Broken) *Listing {
	slices.SortFunc(all, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(broken, func(a, b Broken) int { return cmp.Compare(a.Path, b.Path) })
	l := &Listing{Tools: all, Broken: broken, byID: make(map[string]int, len(all))}
	for i, t := range all {
		l.byID[t.ID()] = i
	}
	return l
}

// Filter returns a listing of the tools, broken files and warnings for which keep returns true. For a broken file, keep
// gets its path without .py.
func (l *Listing) Filter(keep func(server, tool string) bool) *Listing {
	drop := func(id string) bool {
		server, tool, _ := strings.Cut(id, "/")
		return !keep(server, tool)
	}
	all := slices.DeleteFunc(slices.Clone(l.Tools), func(t Tool) bool { return !keep(t.Server, t.Name) })
	broken := slices.DeleteFunc(slices.Clone(l.Broken), func(b Broken) bool {
		return drop(strings.TrimSuffix(b.Path, ".py"))
	})
	out := NewListing(all, broken...)
	out.Skills = l.Skills // allow-lists are for tools
	out.Warnings = slices.DeleteFunc(slices.Clone(l.Warnings), func(w LintWarning) bool { return drop(w.Tool) })
	return out
}

// Lookup returns the tool, or an *UnknownError that suggests similar names.
func (l *Listing) Lookup(server, name string) (Tool, error) {
	if i, ok := l.byID[server+"/"+name]; ok {
		return l.Tools[i], nil
	}
	e := &UnknownError{What: "tool", Name: text.Printable(server + "/" + name)}
	var ids []string
	for _, t := range l.Tools {
		if t.Server == server {
			ids = append(ids, t.ID())
		}
	}
	if ids == nil {
		for _, t := range l.Tools {
			ids = append(ids, t.ID())
		}
	}
	e.Nearest = Nearest(e.Name, ids, 3)
	return Tool{}, e
}

// CheckServer returns nil if the server has a tool, and otherwise an *UnknownError that suggests
// similar names.
func (l *Listing) CheckServer(name string) error {
	if all := l.Servers(); !slices.Contains(all, name) {
		return &UnknownError{What: "server", Name: name, Nearest: Nearest(name, all, 3)}
	}
	return nil
}

// Servers returns the sorted names of the servers that have a tool.
func (l *Listing) Servers() []string {
	var names []string
	for _, t := range l.Tools {
		names = append(names, t.Server)
	}
	return slices.Compact(names)
}
