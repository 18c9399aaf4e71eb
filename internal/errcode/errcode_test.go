package errcode_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/errcode"
)

var update = flag.Bool("update", false, "write docs/errors.md")

// TestDocument compares docs/errors.md with the tables.
func TestDocument(t *testing.T) {
	const file = "../../docs/errors.md"
	want := document()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs, want the tables: run go test ./internal/errcode -update", file)
	}
}

// TestTable checks that each constant has one row, and that the fields of each row are valid.
func TestTable(t *testing.T) {
	var codes []string
	for _, g := range errcode.Table {
		for _, e := range g.Errors {
			codes = append(codes, e.Code)
			if !strings.HasSuffix(e.Meaning, ".") || !strings.HasSuffix(e.Action, ".") {
				t.Errorf("%s: meaning %q and action %q, want sentences", e.Code, e.Meaning, e.Action)
			}
			if e.HTTP != 0 && http.StatusText(e.HTTP) == "" {
				t.Errorf("%s: HTTP is %d, want an HTTP status", e.Code, e.HTTP)
			}
			for _, s := range e.Task {
				if errcode.ExitOfTask(s) == errcode.ExitOK {
					t.Errorf("%s: Task contains %q, want statuses of tasks that failed", e.Code, s)
				}
			}
		}
	}
	slices.Sort(codes)
	constants := slices.Sorted(constantsOf(t))
	if !slices.Equal(codes, constants) {
		t.Errorf("rows are %q\nwant the constants %q", codes, constants)
	}
}

func TestExitOfRefusal(t *testing.T) {
	for _, c := range []struct {
		code         string
		status, want int
	}{
		{errcode.UnknownTask, 404, errcode.ExitUsage},
		{errcode.QuotaExceeded, 413, errcode.ExitRefused},
		{errcode.TooLarge, 413, errcode.ExitUsage},
		{errcode.ApprovalOver, 409, errcode.ExitRefused},
		{errcode.Conflict, 409, errcode.ExitRefused},
		{errcode.StateConflict, 409, errcode.ExitRefused},
		{errcode.SkillConflict, 409, errcode.ExitUsage},
		{errcode.SkillFailed, 422, errcode.ExitFailed},
		{errcode.PreconditionFailed, 412, errcode.ExitRefused},
		{errcode.BacklogFull, 429, errcode.ExitRefused},
		{errcode.Unavailable, 503, errcode.ExitUnreachable},
		{"of_a_newer_fleet", 403, errcode.ExitRefused},
		{"of_a_newer_fleet", 500, errcode.ExitUnreachable},
	} {
		if got := errcode.ExitOfRefusal(c.code, c.status); got != c.want {
			t.Errorf("ExitOfRefusal(%s, %d) = %d, want %d", c.code, c.status, got, c.want)
		}
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Written by go test ./internal/errcode -update. Change internal/errcode/table.go instead. -->

An error has a stable code for programs, a message, and often a cause, a hint, and the path of the value or file that
is wrong. Where a code occurs:

- *HTTP*: a request is refused with this status; the body is
  ` + "`{\"code\", \"message\", \"cause\", \"hint\", \"path\", \"paths\"}`" + `. NATS and MCP have the same codes.
- *task*: a task ends with this status, and the code is in ` + "`error`" + ` of its result.
- *tool*: a program gets it as ` + "`ToolError.code`" + `.
- *client*: a client raises it without a request, or because the response is not a fleet's.

## Exit codes of the command line

With ` + "`-o json`" + `, an error is one JSON object on standard error:
` + "`{\"error\": {\"message\", \"code\", \"hint\", \"exit_code\"}}`" + `. A task or a workflow's run that fails adds no
such object: its JSON on standard output has the error.

| exit code | meaning | status of the task |
|---|---|---|
`)
	for _, e := range errcode.Exits {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", e.Code, e.Meaning, strings.Join(e.Task, ", "))
	}
	for _, g := range errcode.Table {
		fmt.Fprintf(&b, "\n## %s\n\n| code | where | exit code | meaning | what to do |\n|---|---|---|---|---|\n",
			g.Title)
		for _, e := range g.Errors {
			where, exits := places(e)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", e.Code, where, exits, e.Meaning, e.Action)
		}
	}
	return b.String()
}

// places returns where a code occurs, and the exit codes of commands that get it.
func places(e errcode.Error) (where, exits string) {
	var list, codes []string
	add := func(place string, exit int) {
		list = append(list, place)
		if code := strconv.Itoa(exit); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	if e.HTTP != 0 {
		add(fmt.Sprintf("HTTP %d", e.HTTP), errcode.ExitOfRefusal(e.Code, e.HTTP))
	}
	for _, s := range e.Task {
		add("task "+s, errcode.ExitOfTask(s))
	}
	if e.Tool {
		list = append(list, "tool")
	}
	if e.Client && e.Exit != 0 {
		add("client", e.Exit)
	} else if e.Client {
		list = append(list, "client")
	}
	return strings.Join(list, ", "), strings.Join(codes, ", ")
}

// constantsOf yields the values of the constants in codes.go.
func constantsOf(t *testing.T) func(yield func(string) bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string) bool) {
		for n := range ast.Preorder(f) {
			if v, ok := n.(*ast.BasicLit); ok {
				if code, err := strconv.Unquote(v.Value); err == nil && !yield(code) {
					return
				}
			}
		}
	}
}
