package arch_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/sourcetest"
)

// document is a Markdown file of the repository.
type document struct {
	path  string // from the root
	lines []string
}

// documents returns the manual, README.md and CONTRIBUTING.md.
func documents(t *testing.T) (list []document) {
	t.Helper()
	root := sourcetest.Root(t)
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d documents, %v, want at least 10", len(files), err)
	}
	for _, file := range append(files, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, document{filepath.ToSlash(rel), strings.Split(string(text), "\n")})
	}
	return list
}

// each calls fn for every match of a pattern in the documents, and fails without any match.
func each(t *testing.T, pattern *regexp.Regexp, fn func(d document, line int, groups []string)) {
	t.Helper()
	found := 0
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, groups := range pattern.FindAllStringSubmatch(line, -1) {
				found++
				fn(d, i+1, groups)
			}
		}
	}
	if found == 0 {
		t.Errorf("no document matches %s", pattern)
	}
}

// The tests that documents name exist. `TestNoEscape` may be in any package, `state.TestNoEscape` only in a package
// whose path contains state.
func TestNamesOfTestsInDocuments(t *testing.T) {
	tests := testFunctions(t)
	mention := regexp.MustCompile(`(?:\b([a-z0-9]+)\.)?\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)\b`)
	each(t, mention, func(d document, line int, groups []string) {
		pkg, name := groups[1], groups[2]
		if !slices.ContainsFunc(tests[name],
			func(dir string) bool { return pkg == "" || slices.Contains(strings.Split(dir, "/"), pkg) }) {
			t.Errorf("%s:%d: unknown test %s (%s is in %q)", d.path, line, groups[0], name, tests[name])
		}
	})
}

// checkPython prints the problem of the Python program on standard input: a syntax error, or a name that it neither
// defines nor imports. A program of a workspace has the variables inputs and state.
const checkPython = `
import ast, builtins, sys
try:
    nodes = list(ast.walk(ast.parse(sys.stdin.read())))
except SyntaxError as error:
    sys.exit(f"line {error.lineno}: {error.msg}")
defined = {"inputs", "state", *dir(builtins)}
for n in nodes:
    defined |= {n.id} if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load) else set()
    defined |= {n.arg} if isinstance(n, ast.arg) else set()
    defined |= {(n.asname or n.name).split(".")[0]} if isinstance(n, ast.alias) else set()
    defined |= {n.name} if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) else set()
for n in nodes:
    if isinstance(n, ast.Name) and n.id not in defined:
        sys.exit(f"{n.id} is not defined")
`

// The Python programs in documents compile, and define or import the names that they use.
func TestPythonInDocuments(t *testing.T) {
	problem := func(program string) string {
		cmd := exec.CommandContext(t.Context(), "python3", "-c", checkPython)
		cmd.Stdin = strings.NewReader(program)
		out, err := cmd.CombinedOutput()
		if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for program, want := range map[string]string{
		"import os.path as p\ntry: p.join(x := 'a', state)\nexcept OSError as e: print(e, x)": "",
		"print(add(1, 2))": "add is not defined", "print('a)": "line 1: unterminated string literal",
	} {
		if got := problem(program); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("problem of %q = %q, want %q", program, got, want)
		}
	}
	found := 0
	for _, d := range documents(t) {
		for i, line := range d.lines {
			if line != "```python" {
				continue
			}
			end := i + 1 + slices.Index(d.lines[i+1:], "```")
			found++
			if got := problem(strings.Join(d.lines[i+1:end], "\n")); got != "" {
				t.Errorf("%s:%d: %s", d.path, i+1, got)
			}
		}
	}
	if found < 6 {
		t.Errorf("found %d Python programs, want at least 6", found)
	}
}

// The packages in `go test …` exist, and its patterns match tests in these packages.
func TestGoTestCommandsInDocuments(t *testing.T) {
	tests := testFunctions(t)
	command := regexp.MustCompile("go test ([^`#]*)")
	pattern := regexp.MustCompile(`-(run|bench) '?([\w|$^]+)'?`)
	each(t, command, func(d document, line int, groups []string) {
		dirs := regexp.MustCompile(`\./[\w/.]+`).FindAllString(groups[1], -1)
		for _, dir := range dirs {
			mustExist(t, d, line, strings.TrimSuffix(dir, "/..."))
		}
		for _, p := range pattern.FindAllStringSubmatch(groups[1], -1) {
			expression, err := regexp.Compile(p[2])
			if err != nil {
				t.Errorf("%s:%d: %v", d.path, line, err)
				continue
			}
			found := false
			for name, in := range tests {
				covered := slices.ContainsFunc(in, func(dir string) bool { return covers(dirs, dir) })
				found = found || covered && expression.MatchString(name)
			}
			if !found {
				t.Errorf("%s:%d: no test of %q matches %s", d.path, line, dirs, p[2])
			}
		}
	})
}

// covers reports whether package patterns of a go command match a directory.
func covers(patterns []string, dir string) bool {
	return len(patterns) == 0 ||
		slices.ContainsFunc(patterns, func(p string) bool { return under(dir, strings.TrimPrefix(p, "./")) })
}

// The targets in `make …` exist.
func TestMakeTargetsInDocuments(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(sourcetest.Root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile("(?:^ {4}|`)make ([a-z][a-z0-9-]*(?: [a-z0-9-]+)*)")
	each(t, targets, func(d document, line int, groups []string) {
		for target := range strings.FieldsSeq(groups[1]) {
			if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
				t.Errorf("%s:%d: unknown target %s of make", d.path, line, target)
			}
		}
	})
}

// The testscripts that documents name, as in "the script `x` of `cmd/codefleet`", exist.
func TestScriptsInDocuments(t *testing.T) {
	each(t, regexp.MustCompile("scripts? (`[a-z]+`(?:(?:,| and) `[a-z]+`)*) of `(cmd/[a-z-]+)`"),
		func(d document, line int, groups []string) {
			names := strings.ReplaceAll(groups[1], " and ", " ")
			for _, name := range regexp.MustCompile("[a-z]{2,}").FindAllString(names, -1) {
				mustExist(t, d, line, groups[2]+"/testdata/script/"+name+".txtar")
			}
		})
}

// notOurs are paths in documents that are not in the repository.
var notOurs = []string{
	"tools/list", // a method of MCP
	"servers/mine/f.py",
}

// Paths in backquotes exist, except those with a word in capitals, which stands for any name.
func TestPathsInDocuments(t *testing.T) {
	const top = "clients?|cmd|docs|examples|internal|plugin|schemas|servers|test|tools"
	root := regexp.MustCompile("`((?:" + top + `)/[\w./*-]*)`)
	each(t, root, func(d document, line int, groups []string) {
		if name := groups[1]; !slices.Contains(notOurs, name) && !regexp.MustCompile(`\b[A-Z]{4,}`).MatchString(name) {
			mustExist(t, d, line, strings.TrimSuffix(strings.TrimSuffix(name, "..."), "."))
		}
	})
}

// The files and headings to which links refer exist.
func TestLinksInDocuments(t *testing.T) {
	headings := map[string][]string{}
	for _, d := range documents(t) {
		for _, line := range d.lines {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				headings[d.path] = append(headings[d.path], anchor(title))
			}
		}
	}
	each(t, regexp.MustCompile(`\]\(([^)\s]+)\)`), func(d document, line int, groups []string) {
		target, heading, _ := strings.Cut(groups[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			return
		}
		file := d.path
		if target != "" {
			file = path.Join(path.Dir(d.path), target)
			mustExist(t, d, line, file)
		}
		if heading != "" && !slices.Contains(headings[file], heading) {
			t.Errorf("%s:%d: %s has no heading %q", d.path, line, file, heading)
		}
	})
}

// anchor returns a heading's name in links.
func anchor(title string) string {
	title = regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(strings.TrimSpace(title), " ", "-")
}

func mustExist(t *testing.T, d document, line int, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(sourcetest.Root(t), filepath.FromSlash(name)))
	if err != nil || len(found) == 0 {
		t.Errorf("%s:%d: %s does not exist", d.path, line, name)
	}
}

// testFunctions returns the packages of each test function, including those of contract suites, by its name.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, f := range sourcetest.GoFiles(t) {
		if !f.Test && !strings.HasSuffix(f.Package, "test") {
			continue
		}
		_, tree := sourcetest.Parse(t, f, parser.SkipObjectResolution)
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				found[fn.Name.Name] = append(found[fn.Name.Name], f.Package)
			}
		}
	}
	return found
}

// The table of packages in docs/architecture.md lists every package directly below internal, and no other.
func TestPackagesInArchitecture(t *testing.T) {
	listed := map[string]bool{}
	mention := regexp.MustCompile("`(internal/[a-z0-9]+)`")
	for _, d := range documents(t) {
		for _, line := range d.lines {
			if cells := strings.Split(line, "|"); d.path == "docs/architecture.md" && len(cells) > 2 {
				for _, m := range mention.FindAllStringSubmatch(cells[1], -1) {
					listed[m[1]] = true
				}
			}
		}
	}
	exist := map[string]bool{}
	for _, f := range sourcetest.GoFiles(t) {
		if parts := strings.Split(f.Package, "/"); parts[0] == "internal" {
			exist[path.Join(parts[:2]...)] = true
		}
	}
	for pkg := range exist {
		if !listed[pkg] {
			t.Errorf("docs/architecture.md does not list %s", pkg)
		}
	}
	for pkg := range listed {
		if !exist[pkg] {
			t.Errorf("docs/architecture.md lists %s, which does not exist", pkg)
		}
	}
}
