package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/text"
)

// The files of a catalogue that are not modules.
const (
	DefinitionsFile = "definitions.json" // in a server's directory
	ApprovalsFile   = "approvals.json"   // in servers/
)

// Definitions is the content of DefinitionsFile: the server's description of itself, the definitions
// from which its modules were generated, and the Python name of every tool that the server ever had.
// A name is never reused for another tool.
type Definitions struct {
	Server string `json:"server"`
	About
	Generator int               `json:"generator"`
	Names     map[string]string `json:"names"` // the MCP tool's name → its function
	Tools     []Definition      `json:"tools"` // by name
}

// Options configures a Catalogue.
type Options struct {
	Check Checker // checks the syntax of hand-written files; if nil, only scanModule checks it
}

// Catalogue reads a servers directory. It caches what it read: reading an unchanged directory again
// costs one stat per file. It is safe for concurrent use.
type Catalogue struct {
	dir  string
	opts Options

	mu        sync.Mutex // held while reading
	servers   map[string]*serverFiles
	misplaced []Broken // directory entries of servers/ that cannot be a server
	approvals cachedFile
	checked   map[[32]byte]Broken // results of opts.Check by the content's hash; an empty Message means valid syntax
	last      *Listing            // nil before the first Read and after an error
	missing   bool                // the directory did not exist at the last Read
}

// OpenCatalogue returns the catalogue in dir without reading it.
func OpenCatalogue(dir string, opts Options) *Catalogue {
	return &Catalogue{dir: dir, opts: opts, servers: map[string]*serverFiles{}, checked: map[[32]byte]Broken{}}
}

// Read returns the current tools. While no file changes, it returns the same *Listing. Files that cannot
// be tools are listed as Broken. An error means that the directory or the approvals could not be read, or that the
// syntax could not be checked. A directory that does not exist is an empty catalogue.
func (c *Catalogue) Read(ctx context.Context) (*Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	root, err := os.OpenRoot(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		if c.last == nil || !c.missing {
			clear(c.servers)
			c.misplaced, c.approvals, c.missing, c.last = nil, cachedFile{}, true, NewListing(nil)
		}
		return c.last, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	defer func() { _ = root.Close() }()
	c.missing = false
	c.last, err = c.update(ctx, root) // after an error nil, because no listing has the changes that were read
	return c.last, err
}

// update reads the files that have changed. It returns the last listing if none has.
func (c *Catalogue) update(ctx context.Context, root *os.Root) (*Listing, error) {
	changed, broken, err := c.readServers(ctx, root)
	approvalsChanged, approvalsErr := c.readApprovals(root)
	if err := errors.Join(err, approvalsErr); err != nil {
		return nil, fmt.Errorf("read catalogue %s: %w", c.dir, err)
	}
	if !changed && !approvalsChanged && c.last != nil {
		return c.last, nil
	}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	return c.buildListing(broken)
}

// Unpack implements Source.
func (c *Catalogue) Unpack(ctx context.Context, dir string) (Version, *Listing, error) {
	v, listing, err := c.Pack(ctx)
	if err == nil {
		err = v.unpackOnce(dir)
	}
	return v, listing, err
}

// readServers updates the cached files of all servers. broken lists the directory entries of servers/ that cannot be a
// server.
func (c *Catalogue) readServers(ctx context.Context, root *os.Root) (changed bool, broken []Broken, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return false, nil, err
	}
	servers := map[string]*serverFiles{}
	for _, e := range entries {
		name := e.Name()
		if ignored(e) {
			continue
		}
		if problem := checkServerDir(e); problem != "" {
			broken = append(broken, Broken{Path: text.Printable(name), Message: problem})
			continue
		}
		servers[name] = cmp.Or(c.servers[name], &serverFiles{files: map[string]*cachedFile{}})
	}
	var anyChanged atomic.Bool
	anyChanged.Store(!slices.Equal(broken, c.misplaced) || !maps.Equal(servers, c.servers))
	c.misplaced = slices.Clone(broken) // NewListing sorts broken
	c.servers = servers
	var g errgroup.Group
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for name, s := range servers {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			changed, err := s.refresh(root, name)
			if changed {
				anyChanged.Store(true)
			}
			return err
		})
	}
	err = g.Wait()
	return anyChanged.Load(), broken, err
}

// ignored reports whether the catalogue ignores a directory entry of servers/.
func ignored(e fs.DirEntry) bool {
	name := e.Name()
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") ||
		e.Type().IsRegular() && !strings.HasSuffix(name, ".py")
}

// checkServerDir returns why a directory entry of servers/ cannot be a server, or "" if it can.
func checkServerDir(e fs.DirEntry) (problem string) {
	switch name := e.Name(); {
	case e.Type().IsRegular():
		return "a tool's file must be in a server's directory, for example servers/mine/" + text.Printable(name)
	case !e.IsDir():
		return "not a directory or regular file; symbolic links are not followed"
	case !isName(name):
		return invalidServerName
	}
	return ""
}

const invalidServerName = "a server's directory name must be a Python identifier, and no keyword"

func (c *Catalogue) readApprovals(root *os.Root) (changed bool, err error) {
	info, err := root.Lstat(ApprovalsFile)
	if errors.Is(err, fs.ErrNotExist) {
		changed = c.approvals.data != nil
		c.approvals = cachedFile{}
		return changed, nil
	}
	if err != nil {
		return false, err
	}
	if c.approvals.stat.unchanged(info) {
		return false, nil
	}
	next := readFile(root, ApprovalsFile, info)
	if next.skipped != "" {
		return false, fmt.Errorf("%s: %s", ApprovalsFile, next.skipped)
	}
	changed = next.sum != c.approvals.sum
	c.approvals = *next
	return changed, nil
}

// check runs opts.Check on hand-written files whose content it has not checked yet.
func (c *Catalogue) check(ctx context.Context) error {
	if c.opts.Check == nil {
		return nil
	}
	sources, sums := map[string][]byte{}, map[string][32]byte{}
	for server, s := range c.servers {
		for name, f := range s.files {
			_, known := c.checked[f.sum]
			if name == DefinitionsFile || f.sealed || f.skipped != "" || known {
				continue
			}
			key := path.Join(server, name)
			sources[key], sums[key] = f.data, f.sum
		}
	}
	if len(sources) == 0 {
		return nil
	}
	bad, err := c.opts.Check(ctx, sources)
	if err != nil {
		return err
	}
	for key, sum := range sums {
		c.checked[sum] = bad[key]
	}
	return nil
}

func (c *Catalogue) buildListing(broken []Broken) (*Listing, error) {
	approvals, err := parseApprovals(c.approvals.data)
	if err != nil {
		return nil, fmt.Errorf("read catalogue %s: %w", c.dir, err)
	}
	var all []Tool
	var warnings []LintWarning
	var packages []string
	for _, dir := range slices.Sorted(maps.Keys(c.servers)) {
		files := c.servers[dir].files
		if len(files) > 0 {
			packages = append(packages, dir)
		}
		defs := &parsedDefinitions{}
		if f := files[DefinitionsFile]; f != nil {
			defs = f.definitions
		}
		if defs.err != nil {
			broken = append(broken, Broken{Path: path.Join(dir, DefinitionsFile), Message: defs.err.Error()})
		}
		warnings = append(warnings, defs.lint...)
		for name, f := range files {
			if name == DefinitionsFile {
				continue
			}
			t, problem := c.tool(dir, name, f)
			if problem != nil {
				broken = append(broken, *problem)
			}
			if problem != nil || isHelper(name) {
				continue
			}
			if i, ok := defs.byFunc[strings.TrimSuffix(name, ".py")]; ok {
				applyDefinition(&t, defs, i, approvals)
			}
			all = append(all, t)
		}
	}
	listing := NewListing(all, broken...)
	listing.Warnings, listing.packages = warnings, packages
	return listing, nil
}

// tool returns the tool of one module, or why the file is broken. If the checker accepts a file that scanModule cannot
// parse, the checker wins, because it is Python itself: the file is a tool if it contains a def of the module's name.
func (c *Catalogue) tool(dir, file string, f *cachedFile) (Tool, *Broken) {
	at := path.Join(dir, file)
	base := strings.TrimSuffix(file, ".py")
	problem, checked := c.checked[f.sum]
	switch {
	case f.skipped != "":
		return Tool{}, &Broken{Path: text.Printable(at), Message: f.skipped}
	case !isName(base):
		const problem = "a tool's file name must be a Python identifier, and no keyword, with the suffix .py"
		return Tool{}, &Broken{Path: text.Printable(at), Message: problem}
	case checked && problem.Message != "":
		return Tool{}, &Broken{Path: at, Line: problem.Line, Message: problem.Message}
	case f.err != nil && (!checked || !strings.Contains(string(f.data), "def "+base)):
		se := &syntaxError{}
		errors.As(f.err, &se)
		return Tool{}, &Broken{Path: at, Line: se.line, Message: se.message}
	case f.err != nil:
		f.fn = function{name: base, signature: base + "(...)"}
	}
	return Tool{
		Server: dir, Name: base, State: Local, Module: "servers." + dir + "." + base, Path: at,
		Function: f.fn.name, Signature: f.fn.signature, Types: f.fn.types, Doc: f.fn.doc, Description: f.fn.doc,
	}, nil
}

// applyDefinition completes the tool of a module that was generated, and perhaps edited since, with the MCP tool's
// definition.
func applyDefinition(t *Tool, defs *parsedDefinitions, i int, approvals Approvals) {
	d := defs.Tools[i]
	t.Server, t.Name, t.About = defs.Server, d.Name, defs.About
	t.Title, t.Description, t.Doc = text.Printable(d.Title), text.Printable(d.Description), ""
	t.InputSchema, t.OutputSchema, t.Annotations = d.InputSchema, d.OutputSchema, d.Annotations
	t.Hash, t.def = defs.hashes[i], d
	t.State = approvals.State(t.ID(), t.Hash)
}

// Keywords are Python's keywords, which cannot be names.
var Keywords = strings.Fields(`False None True and as assert async await break class continue def del elif else
except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)

// isName reports whether Python can import s: an identifier that is no keyword. Another name would make the generated
// __init__.py of its server a syntax error.
func isName(s string) bool { return isIdentifier(s) && !slices.Contains(Keywords, s) }

// isIdentifier reports whether s is a Python identifier of at most 200 bytes, all of them visible.
func isIdentifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || unicode.In(r, unicode.L, unicode.Nl)
		if !letter && (i == 0 || !unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc)) || text.Hidden(r) {
			return false
		}
	}
	return s != "" && len(s) <= 200
}
