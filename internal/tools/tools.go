// Package tools says what a tool is, and keeps the catalogue of them: the Python modules below a
// directory servers/, read from the file system, approved, linted, and published as immutable
// versions that a task pins. It calls no tool (package broker does), knows no MCP server (package
// mcp) and writes no Python (package pygen). The key type is Tool; Catalogue reads them.
//
// A server is a directory, a tool is a file in it:
//
//	servers/calculator/add.py             the function add; a header, when it was generated
//	servers/calculator/definitions.json   what the MCP server says of its tools (generated)
//	servers/approvals.json                which of those definitions somebody has accepted
package tools

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Definition is what an MCP server says of one tool. It is data from outside: nothing in it may
// reach a file name, a Python program or a log without being checked or quoted.
type Definition struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
}

// Annotations are a server's claims about the effects of a tool. They become part of the
// definition's hash, so that nobody relies on a claim that was not approved with the rest.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint,omitempty"`
	Idempotent  bool   `json:"idempotentHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"` // nil: not said, which counts as yes
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`   // nil: not said, which counts as yes
}

// Mutates reports whether a call may change something: everything not claimed to be read-only.
func (a Annotations) Mutates() bool { return !a.ReadOnly }

// Destroys reports whether a call may delete or overwrite: every mutating tool that does not deny it.
func (a Annotations) Destroys() bool {
	return !a.ReadOnly && (a.Destructive == nil || *a.Destructive)
}

// Repeatable reports whether making a call twice is the same as making it once.
func (a Annotations) Repeatable() bool { return a.ReadOnly || a.Idempotent }

// Effects says in words what is claimed.
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

// Hash identifies the definition: "sha256:" and the digest over its canonical JSON (keys sorted,
// numbers as written). It covers everything that a user of the tool reads or relies on.
func (d Definition) Hash() string {
	canon := func(raw json.RawMessage) any {
		if len(raw) == 0 {
			return nil
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			return string(raw) // not JSON: still a stable identity
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

// Tool is one tool of the catalogue: a Python function, and, when an MCP server stands behind it,
// what that server says of it. A hand-written tool has neither Hash nor schemas.
type Tool struct {
	Server string `json:"server"` // as the calls name it
	Name   string `json:"name"`   // likewise: the MCP tool's own name, or the function's
	State  State  `json:"state"`

	Module    string `json:"module"`    // servers.calculator.add
	Function  string `json:"function"`  // add
	Signature string `json:"signature"` // add(a: float, b: float) -> float
	Doc       string `json:"doc,omitempty"`
	Path      string `json:"path"` // below servers/, slashes

	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
	Hash         string          `json:"hash,omitempty"`
	Exposed      bool            `json:"exposed,omitempty"` // its process wants it to be a tool of the MCP bridge

	About About `json:"-"` // what its server says of itself
	def   Definition
}

// Definition is what the tool's MCP server says of it, to the letter; the zero value for a
// hand-written tool. It is what Approvals.Approve takes.
func (t Tool) Definition() Definition { return t.def }

// State is whether a tool may be called.
type State string

// The states of a tool. Local is a hand-written module, which runs in the box and needs nobody's
// approval: whoever may write the servers directory has given it.
const (
	Local      State = "local"
	Pending    State = "pending"    // nobody has looked at the definition yet
	Approved   State = "approved"   // the definition is the one that somebody accepted
	Changed    State = "changed"    // it was accepted in another form
	Registered State = "registered" // a process of the tenant serves it, and said so with the tenant's credentials
)

// Usable reports whether a program may call the tool.
func (t Tool) Usable() bool {
	return t.State == Local || t.State == Approved || t.State == Registered
}

// ID is "server/tool", the form that allow-lists, results and the command line use.
func (t Tool) ID() string { return t.Server + "/" + t.Name }

// Import is the line that makes the tool's function known to a program.
func (t Tool) Import() string { return "from servers." + t.Package() + " import " + t.Function }

// Package is the directory below servers/ that the tool is in: the Python name of its server.
func (t Tool) Package() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Module, "servers."), ".")
	return name
}

// Summary is the first line of the description, or of the docstring where there is none.
func (t Tool) Summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(t.Description, t.Doc)), "\n")
	return strings.TrimSpace(line)
}

// Broken is a file of the catalogue that is no tool, and why.
type Broken struct {
	Path    string `json:"path"` // below servers/, slashes
	Line    int    `json:"line"` // from 1; 0 when it is the file as a whole
	Message string `json:"message"`
}

func (b Broken) String() string { return fmt.Sprintf("%s:%d: %s", b.Path, b.Line, b.Message) }

// Snapshot is the catalogue at one moment. It is not changed after it was made.
type Listing struct {
	Tools    []Tool    // by server, then name
	Broken   []Broken  // by path
	Warnings []Finding // what Lint found, by tool
	byID     map[string]int
}

// NewSnapshot makes a snapshot of tools and broken files, which it sorts in place.
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

// Narrow returns what keep keeps of the tools, and of what is broken and warned of.
func (l *Listing) Filter(keep func(server, tool string) bool) *Listing {
	kept := func(id string) bool {
		server, tool, _ := strings.Cut(id, "/")
		return keep(server, tool)
	}
	out := NewListing(slices.DeleteFunc(slices.Clone(l.Tools), func(t Tool) bool { return !keep(t.Server, t.Name) }),
		slices.DeleteFunc(slices.Clone(l.Broken), func(b Broken) bool { return !kept(strings.TrimSuffix(b.Path, ".py")) })...)
	out.Warnings = slices.DeleteFunc(slices.Clone(l.Warnings), func(f Finding) bool { return !kept(f.Tool) })
	return out
}

// Lookup returns the tool, or an *UnknownError that names the nearest ones.
func (l *Listing) Lookup(server, name string) (Tool, error) {
	if i, ok := l.byID[server+"/"+name]; ok {
		return l.Tools[i], nil
	}
	e := &UnknownError{What: "tool", Name: server + "/" + name}
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

// KnowsServer is nil, or an *UnknownError that names the nearest servers that have a tool.
func (l *Listing) CheckServer(name string) error {
	if all := l.Servers(); !slices.Contains(all, name) {
		return &UnknownError{What: "server", Name: name, Nearest: Nearest(name, all, 3)}
	}
	return nil
}

// Servers returns the names of the servers that have a tool, sorted.
func (l *Listing) Servers() []string {
	var names []string
	for _, t := range l.Tools {
		names = append(names, t.Server)
	}
	return slices.Compact(names)
}
