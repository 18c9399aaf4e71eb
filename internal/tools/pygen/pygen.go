// Package pygen generates Python: from the definitions of an MCP server one module with one typed function
// per tool, below servers/<server>/. Definitions are untrusted: for any input the output parses, imports,
// type-checks and stays in its directory. The key function is Generate.
//
// How JSON Schema becomes Python:
//   - required parameters are positional or by name, in the order of the schema's "required" (decoding
//     loses the order of "properties"); optional ones are by name only and, if omitted, not sent;
//   - an object with properties is a TypedDict, other objects are Dict[str, T], arrays List or Tuple, enum
//     and const Literal, anyOf, oneOf and lists of types Union; allOf is merged; a local $ref is resolved,
//     a remote one is not; what Python's types cannot express is Any, never a narrower type;
//   - the type of the result comes from the output schema; {"result": T} with "x-fastmcp-wrap-result" is T.
package pygen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Source is the input of Generate.
type Source struct {
	Server   string // the configured name, as in calls
	About    tools.About
	Tools    []tools.Definition
	Previous tools.Index // of the last generation, so that names keep their meaning
}

// Package is one generated server. Files maps names below servers/<Dir> to contents.
type Package struct {
	Dir      string
	Files    map[string][]byte
	Index    tools.Index
	Rejected []Rejection // tools without a module
}

// Rejection is a tool for which no module is generated, with the reason.
type Rejection struct{ Tool, Reason string }

// Limits of one server.
const (
	maxTools  = 5000
	maxSchema = 1 << 20 // bytes of both schemas of a tool
	maxName   = 512     // bytes
)

// Generate returns the package of a server. It fails only if no Python name can be derived from the
// server's; a tool that has no valid definition is Rejected, without affecting the others.
func Generate(s Source) (Package, error) {
	dir := Identifier(s.Server)
	if dir == "" || len(s.Server) > maxName {
		return Package{}, fmt.Errorf("generate server %q: no Python name can be derived", text.Printable(s.Server))
	}
	p := Package{Dir: dir, Files: map[string][]byte{}}
	accepted := p.accept(s)
	names := assign(s.Previous.Names, accepted)
	p.Index = tools.Index{
		Server: s.Server, About: s.About.Sanitize(), Generator: tools.Generator, Names: names, Tools: accepted,
	}
	var exports []tools.Export
	for _, d := range accepted {
		m := newModule(s, names[d.Name], d)
		p.Files[m.function+".py"] = m.render()
		exports = append(exports, tools.Export{Module: m.function, Function: m.function})
	}
	p.Files["__init__.py"] = tools.PackageInit("Tools of the MCP server "+s.Server+".", exports)
	p.Files["README.md"] = readme(s.Server, accepted, names)
	index, err := marshal(p.Index)
	p.Files[tools.IndexFile] = index
	return p, err
}

func (p *Package) accept(s Source) []tools.Definition {
	var out []tools.Definition
	listed := map[string]bool{}
	for _, d := range s.Tools {
		reason := ""
		switch {
		case d.Name == "" || len(d.Name) > maxName:
			reason = "its name is empty or too long"
		case text.Printable(d.Name) != d.Name || strings.ContainsAny(d.Name, "\t\r\n"):
			reason = "its name has hidden characters"
		case listed[d.Name]:
			reason = "the server lists the name twice"
		case len(d.InputSchema)+len(d.OutputSchema) > maxSchema:
			reason = "its schemas are too large"
		case len(d.InputSchema) > 0 && !json.Valid(d.InputSchema), len(d.OutputSchema) > 0 &&
			!json.Valid(d.OutputSchema):
			reason = "a schema is not valid JSON"
		case len(out) == maxTools:
			reason = "the server has too many tools"
		}
		if reason != "" {
			p.Rejected = append(p.Rejected, Rejection{Tool: text.Printable(d.Name), Reason: reason})
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

// maxIndentFactor is how many times as long indentation may make the definitions.
const maxIndentFactor = 4

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return text.IndentJSON(b.Bytes(), " ", maxIndentFactor*b.Len()), err
}

// Write updates servers/<Dir> to the package: it replaces changed files one by one, removes generated
// modules of tools that no longer exist, and keeps hand-written files. It returns the changed files. If
// the directory belongs to another server, or a hand-written file has the name of a module, it returns an
// error and writes nothing.
func Write(servers string, p Package) (changed []string, err error) {
	if err := os.MkdirAll(servers, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(servers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	old, err := Previous(servers, p.Index.Server)
	if err != nil {
		return nil, err
	}
	stale, err := plan(root, p, old)
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
	files := maps.Clone(p.Files)
	for name, data := range files {
		at := path.Join(p.Dir, name)
		if was, err := root.ReadFile(at); err == nil && bytes.Equal(was, data) {
			continue
		}
		if err := replace(root, at, data); err != nil {
			return changed, err
		}
		changed = append(changed, at)
	}
	if was, err := root.ReadFile("__init__.py"); err != nil || !bytes.Equal(was, tools.Support) {
		if err := replace(root, "__init__.py", tools.Support); err != nil {
			return changed, err
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// Previous returns the index of the last generation for the server; an empty Index if there is none.
func Previous(servers, server string) (tools.Index, error) {
	at := path.Join(Identifier(server), tools.IndexFile)
	data, err := fs.ReadFile(os.DirFS(servers), at)
	if errors.Is(err, fs.ErrNotExist) {
		return tools.Index{}, nil
	}
	if err != nil {
		return tools.Index{}, err
	}
	var old tools.Index
	if err := json.Unmarshal(data, &old); err != nil {
		return tools.Index{}, fmt.Errorf("%s: %w", at, err)
	}
	if old.Server != server {
		return tools.Index{}, fmt.Errorf("servers/%s belongs to server %q: give %q another name", path.Dir(at),
			old.Server, server)
	}
	return old, nil
}

// plan returns the modules to remove, or an error if a hand-written file has the name of a module.
func plan(root *os.Root, p Package, old tools.Index) (stale []string, err error) {
	ours := map[string]bool{}
	for _, function := range old.Names {
		ours[function+".py"] = true
	}
	for name := range p.Files {
		at := path.Join(p.Dir, name)
		if _, err := root.Lstat(at); err == nil && strings.HasSuffix(name, ".py") && name != "__init__.py" &&
			!ours[name] {
			return nil, fmt.Errorf("servers/%s was not generated, and server %q has a tool of that name: "+
				"give the server another name, or move the file away", at, p.Index.Server)
		}
	}
	for name := range ours {
		at := path.Join(p.Dir, name)
		if _, err := root.Lstat(at); err == nil && p.Files[name] == nil {
			stale = append(stale, at)
		}
	}
	return stale, nil
}

func replace(root *os.Root, name string, data []byte) error {
	tmp := path.Join(path.Dir(name), ".new-"+path.Base(name))
	if err := root.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}
