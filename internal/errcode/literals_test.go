package errcode_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/sourcetest"
)

// foreign lists literals that are not codes of this package, by file.
var foreign = map[string][]string{
	"examples/plugin/main.go":       {"import_refused"}, // plugins define their own codes
	"internal/codegen/openai.go":    {"content_filter", "context_length_exceeded", "insufficient_quota"},
	"internal/tools/broker/span.go": {"cut"}, // the span status of a call that outlived its program
}

// TestLiterals checks that Go code uses the constants of this package instead of string literals. Tests may use
// literals, which pins the codes on the wire.
func TestLiterals(t *testing.T) {
	params := codeParameters(t)
	for _, f := range sourcetest.GoFiles(t) {
		if f.Test || strings.HasPrefix(f.Package, "test") || strings.HasSuffix(f.Package, "test") {
			continue
		}
		set, tree := sourcetest.Parse(t, f, 0)
		for _, l := range codeLiterals(tree, params) {
			code, err := strconv.Unquote(l.Value)
			if err == nil && codePattern.MatchString(code) && !slices.Contains(foreign[f.Path], code) {
				t.Errorf("%s: error code is the literal %q, want a constant of internal/errcode",
					set.Position(l.Pos()), code)
			}
		}
	}
}

// TestCodeLiterals checks that codeLiterals finds literals.
func TestCodeLiterals(t *testing.T) {
	const source = `package p
var a = Error{Code: "one"}
var b = New("two", 1)
func c(e Error) string {
	e.Code = "three"
	if code := e.Code; code == "four" || e.Code != "five" { return "no" }
	switch e.ErrorCode { case "six", "seven": }
	return other.New("no")
}`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range codeLiterals(tree, map[string][]int{"p.New": {0}}) {
		got = append(got, strings.Trim(l.Value, `"`))
	}
	if want := []string{"one", "two", "three", "four", "five", "six", "seven"}; !slices.Equal(got, want) {
		t.Errorf("codeLiterals = %q, want %q", got, want)
	}
}

// TestPythonCodes checks that the codes in the runner and in the Python client are in the table.
func TestPythonCodes(t *testing.T) {
	literal := regexp.MustCompile(`"code"\] = "(\w+)"|"code": "(\w+)"|, "(\w+_\w+)"\) from None|code="(\w+)"|` +
		`, (?:0|400|e\.code),\s+"(\w+)"`)
	list := regexp.MustCompile(`(?m)^CODES = \((.*)\)$`)
	var found []string
	for _, dir := range []string{"internal/executor/runner", "clients/python", "clients/python/code_execution_mcp"} {
		files, err := filepath.Glob(filepath.Join(sourcetest.Root(t), dir, "*.py"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: Glob = %d files, %v; want at least one", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasPrefix(filepath.Base(file), "test_") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range literal.FindAllStringSubmatch(string(data), -1) {
				found = append(found, strings.Join(m[1:], ""))
			}
			for _, m := range list.FindAllStringSubmatch(string(data), -1) {
				for code := range strings.SplitSeq(m[1], ",") {
					found = append(found, strings.Trim(code, ` "`))
				}
			}
		}
	}
	if len(found) < 10 {
		t.Errorf("found %q, want at least 10 codes", found)
	}
	for _, code := range found {
		if _, ok := errcode.Lookup(code); !ok {
			t.Errorf("a Python file has the error code %q, want one of the table", code)
		}
	}
}

var codePattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// codeParameters returns the positions of the parameters named code, by "package.Function".
func codeParameters(t *testing.T) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	for _, f := range sourcetest.GoFiles(t) {
		_, tree := sourcetest.Parse(t, f, parser.SkipObjectResolution)
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				at, name := 0, tree.Name.Name+"."+fn.Name.Name
				for _, field := range fn.Type.Params.List {
					for _, param := range field.Names {
						if param.Name == "code" {
							found[name] = append(found[name], at)
						}
						at++
					}
				}
			}
		}
	}
	return found
}

// codeLiterals returns the string literals that are used as error codes: assigned to or compared with a field or
// variable named code, or passed for a parameter named code.
func codeLiterals(tree *ast.File, params map[string][]int) (list []*ast.BasicLit) {
	add := func(isCode bool, values ...ast.Expr) {
		for _, v := range values {
			if l, ok := v.(*ast.BasicLit); ok && isCode && l.Kind == token.STRING {
				list = append(list, l)
			}
		}
	}
	for n := range ast.Preorder(tree) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			add(isCode(n.Key), n.Value)
		case *ast.BinaryExpr:
			add(isCode(n.X), n.Y)
		case *ast.AssignStmt:
			for i, l := range n.Lhs[:min(len(n.Lhs), len(n.Rhs))] {
				add(isCode(l), n.Rhs[i])
			}
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				if c, ok := c.(*ast.CaseClause); ok {
					add(isCode(n.Tag), c.List...)
				}
			}
		case *ast.CallExpr:
			for _, i := range params[calleeOf(n, tree.Name.Name)] {
				if i < len(n.Args) {
					add(true, n.Args[i])
				}
			}
		}
	}
	return list
}

func isCode(e ast.Expr) bool {
	return slices.Contains([]string{"Code", "ErrorCode", "code"}, nameOf(e))
}

// calleeOf returns the function that a file of a package calls, as "package.Function".
func calleeOf(c *ast.CallExpr, pkg string) string {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		return nameOf(s.X) + "." + s.Sel.Name
	}
	return pkg + "." + nameOf(c.Fun)
}

// nameOf returns the last name in an expression, such as the field in a selector.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
