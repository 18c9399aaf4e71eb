package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/codefleet/codefleet"

// listedPackage is a package in the output of go list.
type listedPackage struct {
	ImportPath string   `json:"ImportPath"`
	Dir        string   `json:"Dir"`
	GoFiles    []string `json:"GoFiles"`
	Imports    []string `json:"Imports"`
}

// checkout contains the parsed packages of the product in one checkout.
type checkout struct {
	dir      string
	packages []*pkg
}

type pkg struct {
	path    string // relative to the module
	imports []string
	files   []*file
}

type file struct {
	name string
	src  []byte
	ast  *ast.File
	fset *token.FileSet
}

// load parses the product's packages, without generated files.
func load(ctx context.Context, dir string) (*checkout, error) {
	list, err := listProduct(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := &checkout{dir: dir}
	for _, l := range list {
		p := &pkg{path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, module), "/"), imports: l.Imports}
		for _, name := range l.GoFiles {
			f, err := parse(filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			if !ast.IsGenerated(f.ast) {
				p.files = append(p.files, f)
			}
		}
		c.packages = append(c.packages, p)
	}
	return c, nil
}

func parse(name string) (*file, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	return &file{filepath.Base(name), src, tree, fset}, err
}

func (c *checkout) find(path string) *pkg {
	for _, p := range c.packages {
		if p.path == path {
			return p
		}
	}
	return nil
}

// codeLines counts the lines that contain at least one token other than a comment.
func (c *checkout) codeLines() int {
	sum := 0
	for _, p := range c.packages {
		for _, f := range p.files {
			sum += codeLines(f)
		}
	}
	return sum
}

func codeLines(f *file) int {
	lines := map[int]bool{}
	fset := token.NewFileSet()
	in := fset.AddFile("", -1, len(f.src))
	var s scanner.Scanner
	s.Init(in, f.src, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		for i := range strings.Count(lit, "\n") + 1 {
			lines[in.Line(pos)+i] = true
		}
	}
}

// fanOut returns how many packages of this module a package imports. Of the given names, the first one that exists
// counts.
func (c *checkout) fanOut(names ...string) int {
	for _, name := range names {
		if p := c.find("internal/" + name); p != nil {
			n := 0
			for _, path := range p.imports {
				if strings.HasPrefix(path, module) {
					n++
				}
			}
			return n
		}
	}
	return 0
}

// optionSuffixes are the suffixes of structs that carry dependencies and settings to a constructor.
var optionSuffixes = []string{"Options", "Stages", "Parts", "Deps", "Hooks"}

// largestOptions describes the struct of options with the most fields.
func (c *checkout) largestOptions() string {
	largest, name := 0, ""
	c.types(func(p *pkg, spec *ast.TypeSpec) {
		s, ok := spec.Type.(*ast.StructType)
		if !ok || !slices.ContainsFunc(optionSuffixes,
			func(end string) bool { return strings.HasSuffix(spec.Name.Name, end) }) {
			return
		}
		if n := s.Fields.NumFields(); n > largest {
			largest, name = n, filepath.Base(p.path)+"."+spec.Name.Name
		}
	})
	return fmt.Sprintf("%d (%s)", largest, name)
}

// types calls fn for each declaration of a type.
func (c *checkout) types(fn func(*pkg, *ast.TypeSpec)) {
	for _, p := range c.packages {
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					fn(p, spec)
				}
				return true
			})
		}
	}
}

// functions calls fn for each function and method.
func (c *checkout) functions(fn func(*pkg, *file, *ast.FuncDecl)) {
	for _, p := range c.packages {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					fn(p, f, d)
				}
			}
		}
	}
}

// methods counts the exported methods of a type.
func (c *checkout) methods(path, typeName string) int {
	n := 0
	c.functions(func(p *pkg, _ *file, d *ast.FuncDecl) {
		if p.path == path && d.Name.IsExported() && receiver(d) == typeName {
			n++
		}
	})
	return n
}

// receiver returns the name of a method's type, or "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// functionLines returns the median and the 90th percentile of the functions' lengths.
func (c *checkout) functionLines() string {
	var lengths []int
	c.functions(func(_ *pkg, f *file, d *ast.FuncDecl) {
		lengths = append(lengths, f.fset.Position(d.End()).Line-f.fset.Position(d.Pos()).Line+1)
	})
	slices.Sort(lengths)
	return fmt.Sprintf("%d / %d", lengths[len(lengths)/2], lengths[len(lengths)*9/10])
}

// wideLines counts the lines over 120 columns in all Go files of the checkout. A tab counts as four columns.
func (c *checkout) wideLines() int {
	n, tree := 0, os.DirFS(c.dir)
	_ = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		for s := bufio.NewScanner(bytes.NewReader(src)); s.Scan(); {
			if len([]rune(strings.ReplaceAll(s.Text(), "\t", "    "))) > 120 {
				n++
			}
		}
		return err
	})
	return n
}
