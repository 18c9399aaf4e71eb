package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const (
	modulePath = "github.com/codefleet/codefleet"
	configPath = modulePath + "/internal/config"
)

// TestEverySettingHasAReader checks that noEffectYet lists exactly the settings whose field no code reads.
func TestEverySettingHasAReader(t *testing.T) {
	p := &importer{fset: token.NewFileSet(), packages: map[string]*types.Package{}, reads: map[string]bool{}}
	err := filepath.WalkDir("../..", func(dir string, d os.DirEntry, err error) error {
		switch name := ""; {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == "testdata", d.Name() == "bin", strings.HasPrefix(d.Name(), ".") && dir != "../..":
			return filepath.SkipDir
		default:
			name = filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(dir, "../.."), "/"))
			_, _ = p.Import(strings.TrimSuffix(modulePath+"/"+name, "/"))
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var unread []string
	for _, s := range settings() {
		if !p.reads[s.field] {
			unread = append(unread, s.path)
		}
	}
	if diff := gocmp.Diff(noEffectYet, slices.Sorted(slices.Values(unread))); diff != "" {
		t.Errorf("settings without a reader (-noEffectYet +found):\n%s", diff)
	}
}

// setting is one value of the configuration: its path, and its field as "Type.Field".
type setting struct{ path, field string }

func settings() (all []setting) {
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for f := range t.Fields() {
			name := yamlName(f)
			if name == "" {
				continue
			}
			at := join(path, name)
			switch {
			case isScalar(f.Type) || f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.String:
				all = append(all, setting{at, t.Name() + "." + f.Name})
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, at)
			default:
				walk(f.Type.Elem(), at+".NAME")
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return all
}

// importer type-checks the packages of this module and records which fields of the configuration they read. It does not
// import packages of other modules and ignores the errors that follow, because only types of this module matter.
type importer struct {
	fset     *token.FileSet
	packages map[string]*types.Package
	reads    map[string]bool // "Type.Field"
}

// Import implements types.Importer.
func (p *importer) Import(path string) (*types.Package, error) {
	dir, ok := strings.CutPrefix(path, modulePath)
	if !ok {
		return nil, fmt.Errorf("%s belongs to another module", path)
	}
	if pkg := p.packages[path]; pkg != nil {
		return pkg, nil
	}
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(p.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no files: %w", path, err)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: p, Error: func(error) {}}
	pkg, _ := conf.Check(path, p.fset, files, info)
	p.packages[path] = pkg
	for _, f := range files {
		p.record(path, f, info)
	}
	return pkg, nil
}

// record adds the fields that a file reads. Methods of the checker and assignments do not count as readers.
func (p *importer) record(path string, f *ast.File, info *types.Info) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return path != configPath || n.Name.Name != "check" && !isMethodOf(n, "checker")
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && n.Tok == token.ASSIGN {
					delete(info.Selections, s)
				}
			}
		case *ast.SelectorExpr:
			s := info.Selections[n]
			if s == nil || s.Kind() != types.FieldVal || s.Obj().Pkg() == nil || s.Obj().Pkg().Path() != configPath {
				break
			}
			recv := s.Recv()
			if pointer, ok := recv.(*types.Pointer); ok {
				recv = pointer.Elem()
			}
			if named, ok := recv.(*types.Named); ok {
				p.reads[named.Obj().Name()+"."+s.Obj().Name()] = true
			}
		}
		return true
	})
}

func isMethodOf(f *ast.FuncDecl, name string) bool {
	if f.Recv == nil {
		return false
	}
	star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	ident, ok := star.X.(*ast.Ident)
	return ok && ident.Name == name
}
