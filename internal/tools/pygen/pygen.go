// Package pygen generates Python from the definitions of an MCP server. Each tool becomes a module in
// servers/<server>/ with one typed function. Definitions are untrusted: whatever they contain, the output
// parses, imports, type-checks and stays in its directory. The key function is Generate.
//
// JSON Schema becomes Python as follows:
//   - Parameters are given by position or by name. First come the required ones without a default, then the required
//     ones with a default, both in the order of the schema's "required". Then come the optional ones, in the order of
//     the schema's "properties".
//   - A required parameter with a default may be omitted; its default is then sent. An omitted optional one is not
//     sent.
//   - An object with properties is a TypedDict, any other object a Dict[str, T]. An argument with properties and
//     further members is either. An array is a List or Tuple. A string of JSON names the type of its content.
//   - "enum" and "const" become a Literal; "anyOf", "oneOf" and lists of types become a Union.
//   - "allOf" is merged. A reference to a part of the document is resolved, a remote one is not. The
//     properties in "if", "then", "else", "dependentSchemas", "dependentRequired" and "dependencies" are optional.
//   - Where Python's types cannot express a schema, the type is Any, never a narrower type.
//   - The result type comes from the output schema; {"result": T} with "x-fastmcp-wrap-result" becomes T.
package pygen

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Source is the input of Generate.
type Source struct {
	Server   string // the configured name, which calls use
	About    tools.About
	Tools    []tools.Definition
	Previous tools.Definitions // from the previous Generate, so that tools keep their names
}

// Package is one generated server.
type Package struct {
	Dir         string            // below servers/
	Files       map[string][]byte // content by name in Dir
	Definitions tools.Definitions
	Rejected    []Rejection // tools without a module
}

// Rejection is a tool for which no module is generated, with the reason.
type Rejection struct{ Tool, Reason string }

// Limits of one server.
const (
	maxTools  = 5000
	maxSchema = 1 << 20 // bytes of both schemas of a tool
	maxName   = 512     // bytes of the name of a server or a tool

	maxIndentFactor = 4 // definitions are not indented if that could make them more than this many times as long
)

// Generate returns a server's package. It fails if the server's name is too long or yields no Python name. A
// tool without a valid definition is listed in Rejected, and the others are not affected.
func Generate(s Source) (Package, error) {
	dir := Identifier(s.Server)
	if dir == "" || len(s.Server) > maxName {
		return Package{}, fmt.Errorf("generate server %q: its name is too long or yields no Python name",
			text.Printable(s.Server))
	}
	p := Package{Dir: dir, Files: map[string][]byte{}}
	accepted := p.accept(s)
	names := assignNames(s.Previous.Names, accepted)
	p.Definitions = tools.Definitions{
		Server: s.Server, About: s.About.Sanitize(), Generator: tools.Generator, Names: names, Tools: accepted,
	}
	var exports []tools.Export
	for _, d := range accepted {
		m := newModule(s, names[d.Name], d)
		p.Files[m.function+".py"] = m.render()
		exports = append(exports, tools.Export{Module: m.function, Function: m.function, Tool: d.Name})
	}
	p.Files["__init__.py"] = tools.PackageInit("Tools of the MCP server "+s.Server+".", exports)
	p.Files["README.md"] = readme(s.Server, accepted, names)
	data, err := tools.EncodeJSON(p.Definitions)
	p.Files[tools.DefinitionsFile] = text.IndentJSON(data, " ", maxIndentFactor*len(data))
	return p, err
}

// Program returns a program that calls a tool with the members of its variable named inputs as keyword arguments. Only
// the catalogue of the task has the name of the tool's function, so the program tries each of functionNames. If the one
// that it finds is the function of another tool, the program fails.
func Program(server, tool string) string {
	var b strings.Builder
	indent := ""
	names := functionNames(tool)
	for i, name := range names {
		load := "from servers." + Identifier(server) + " import " + name + " as call\n"
		if i == len(names)-1 {
			b.WriteString(indent + load)
			break
		}
		b.WriteString(indent + "try:\n" + indent + "    " + load + indent + "except ImportError:\n")
		indent += "    "
	}
	name, pkg := tools.PyString(tool), Identifier(server)
	fmt.Fprintf(&b, "if getattr(call, '__tool__', %s) != %[1]s:\n", name)
	fmt.Fprintf(&b, "    raise ImportError('servers.%s has no tool ' + %s)\n", pkg, name)
	b.WriteString("\nresult = call(**(inputs or {}))\n")
	return b.String()
}

// accept returns the tools with a valid definition, sorted by name, and lists the others in p.Rejected.
func (p *Package) accept(s Source) []tools.Definition {
	var out []tools.Definition
	listed := map[string]bool{}
	for _, d := range s.Tools {
		reason := ""
		switch {
		case d.Name == "" || len(d.Name) > maxName:
			reason = "its name is empty or too long"
		case text.Printable(d.Name) != d.Name || strings.ContainsAny(d.Name, "\t\r\n"):
			reason = "its name contains hidden characters"
		case listed[d.Name]:
			reason = "the server lists the name twice"
		case d.Problem != "":
			reason = text.PrintableLine(d.Problem)
		case len(d.InputSchema)+len(d.OutputSchema) > maxSchema:
			reason = "its schemas are too large"
		case len(d.InputSchema) > 0 && !json.Valid(d.InputSchema), len(d.OutputSchema) > 0 &&
			!json.Valid(d.OutputSchema):
			reason = "a schema is not valid JSON"
		case len(out) == maxTools:
			reason = "the server has too many tools"
		}
		if reason != "" {
			p.Rejected = append(p.Rejected, Rejection{Tool: text.PrintableLine(d.Name), Reason: reason})
			continue
		}
		listed[d.Name] = true
		if len(d.InputSchema) == 0 {
			d.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b tools.Definition) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Write updates servers/<Dir>. It replaces changed files one by one, removes generated modules that no listed tool
// has, keeps files that were written or edited by hand, and returns the changed and removed files. If the directory
// belongs to another server, or is hand-written, or such a file has the name of a module, it returns an error and
// changes no file.
func Write(servers string, p Package) (changed []string, err error) {
	if err := os.MkdirAll(servers, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(servers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	old, err := Previous(servers, p.Definitions.Server)
	if err != nil {
		return nil, err
	}
	stale, err := staleModules(root, p, old)
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range stale {
		if err := root.Remove(name); err != nil {
			return changed, err
		}
		changed = append(changed, name)
	}
	for name, data := range p.Files {
		at := path.Join(p.Dir, name)
		if own, err := root.ReadFile(at); err == nil && name == "__init__.py" && tools.HasOwnInit(own) {
			continue
		}
		updated, err := update(root, at, data)
		if err != nil {
			return changed, err
		}
		if updated {
			changed = append(changed, at)
		}
	}
	slices.Sort(changed)
	_, err = update(root, "__init__.py", tools.Support)
	return changed, err
}

// Previous returns the definitions that the previous Write wrote for the server, or the zero value if
// there are none.
func Previous(servers, server string) (tools.Definitions, error) {
	at := path.Join(Identifier(server), tools.DefinitionsFile)
	data, err := fs.ReadFile(os.DirFS(servers), at)
	if errors.Is(err, fs.ErrNotExist) {
		return tools.Definitions{}, nil
	}
	if err != nil {
		return tools.Definitions{}, err
	}
	var old tools.Definitions
	if err := json.Unmarshal(data, &old); err != nil {
		return tools.Definitions{}, fmt.Errorf("%s: %w", at, err)
	}
	if old.Server != server {
		return tools.Definitions{}, fmt.Errorf("servers/%s belongs to server %q: rename server %q", path.Dir(at),
			old.Server, server)
	}
	return old, nil
}

// staleModules returns the modules to remove. The error says that a file with the name of a module was written or
// edited by hand, or that the whole directory is hand-written.
func staleModules(root *os.Root, p Package, old tools.Definitions) (stale []string, err error) {
	if old.Server == "" {
		if modules, err := fs.Glob(root.FS(), p.Dir+"/*.py"); err != nil || len(modules) > 0 {
			return nil, cmp.Or(err, fmt.Errorf("servers/%s has hand-written tools: rename server %q, or move them",
				p.Dir, p.Definitions.Server))
		}
	}
	for name := range p.Files {
		at := path.Join(p.Dir, name)
		if strings.HasSuffix(name, ".py") && name != "__init__.py" && exists(root, at) && !isGenerated(root, at) {
			return nil, fmt.Errorf("servers/%s was written or edited by hand, but server %q has a tool of that name: "+
				"move the file to another server, or delete it", at, p.Definitions.Server)
		}
	}
	kept := map[string]bool{} // not p.Files, which AddAnnounced reduces
	for _, d := range p.Definitions.Tools {
		kept[p.Definitions.Names[d.Name]] = true
	}
	for _, function := range old.Names {
		at := path.Join(p.Dir, function+".py")
		if !kept[function] && path.Dir(at) == p.Dir && isGenerated(root, at) { // the names may have been edited
			stale = append(stale, at)
		}
	}
	return stale, nil
}

func exists(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}

// isGenerated reports whether a file exists, was generated, and was not edited since.
func isGenerated(root *os.Root, name string) bool {
	data, err := root.ReadFile(name)
	return err == nil && tools.IsGenerated(data)
}

// update replaces a file atomically if its content differs from data, and reports whether it did.
func update(root *os.Root, name string, data []byte) (changed bool, err error) {
	if old, err := root.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	tmp := path.Join(path.Dir(name), ".new-"+rand.Text()) // another process may update the file at the same time
	if err = root.WriteFile(tmp, data, 0o644); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err == nil, err
}
