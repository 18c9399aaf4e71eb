package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"os"
	"strings"
	"testing"
)

// TestPrintedCommandsHaveFlags checks that commands in printed text go through withFlags.
func TestPrintedCommandsHaveFlags(t *testing.T) {
	printers := map[string]bool{
		"Fprint": true, "Fprintf": true, "Fprintln": true, "Sprint": true, "Sprintf": true, "Sprintln": true,
		"row": true,
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		isTest := strings.HasSuffix(e.Name(), "_test.go")
		if !strings.HasSuffix(e.Name(), ".go") || isTest || e.Name() == "up.go" { // a new fleet needs no flags
			continue
		}
		files := gotoken.NewFileSet()
		parsed, err := parser.ParseFile(files, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var stack []ast.Node
		ast.Inspect(parsed, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			stack = append(stack, n)
			if s, ok := n.(*ast.BasicLit); ok && commandInHint.MatchString(s.Value) {
				var printed, flagged bool
				for _, above := range stack {
					name := calledName(above)
					printed, flagged = printed || printers[name], flagged || name == "withFlags" || name == "try"
				}
				if printed && !flagged {
					t.Errorf("%s: %s is printed without withFlags", files.Position(s.Pos()), s.Value)
				}
			}
			return true
		})
	}
}

// calledName returns the name of the function or method that a node calls.
func calledName(n ast.Node) string {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// TestHintsHaveFlags checks that the commands in a hint concern what the command line concerned.
func TestHintsHaveFlags(t *testing.T) {
	for _, c := range []struct{ args, hint, want string }{
		{"workspace cat x", "codefleet workspace ls", "codefleet workspace ls"},
		{
			"--fleet f.json workspace cat x -w A", "codefleet workspace ls -r and codefleet workspace rm, or more",
			"codefleet workspace ls --fleet f.json --workspace A -r and " +
				"codefleet workspace rm --fleet f.json --workspace A, or more",
		},
		{"workspace log -w A", "codefleet workspace list", "codefleet workspace list"}, // takes no workspace
		{
			"workspace rm -w A", "codefleet workspace rm --workspace A --all",
			"codefleet workspace rm --workspace A --all",
		},
		{
			"workspace log --workspace A", "codefleet workspace log  (lists the kept versions)",
			"codefleet workspace log --workspace A  (lists the kept versions)",
		},
		{
			"workspace check -w $(x)", "see `codefleet workspace check`",
			"see `codefleet workspace check --workspace '$(x)'`",
		},
		{"up --config c.yaml --workspace d", "codefleet config check", "codefleet config check --config c.yaml"},
		{"run --fleet f.json x", "start one with `codefleet up`", "start one with `codefleet up`"},
		{"run --config c.yaml x", "start one with `codefleet up`", "start one with `codefleet up --config c.yaml`"},
		{"tasks --fleet f.json", "codefleet status ID", "codefleet status --fleet f.json ID"},
		{"tasks --fleet f.json", withID("codefleet status ID", "x"), "codefleet status --fleet f.json x"},
		{
			"pause --fleet f.json fleet", "codefleet why a2wn, codefleet resume tenant/a",
			"codefleet why --fleet f.json a2wn, codefleet resume --fleet f.json tenant/a",
		},
		{"tasks --fleet f.json", "codefleet is a program", "codefleet is a program"},
	} {
		a := &app{stdout: io.Discard, stderr: io.Discard}
		command, rest, err := a.root().Find(strings.Fields(c.args))
		if err != nil {
			t.Fatal(err)
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		a.executed = command
		if got := a.withFlags(c.hint); got != c.want {
			t.Errorf("%s: hint %q, want %q", c.args, got, c.want)
		}
	}
}
