package bridge

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/sourcetest"
)

// command matches what a person types at a command line.
var command = regexp.MustCompile("codefleet [a-z]")

// route matches a sentence that begins with an HTTP request.
var route = regexp.MustCompile("(GET|POST|PUT|DELETE) /v1/[^ ]+ [a-z]")

// hintsForHTTP are the texts that name a route, with the codes of their errors: an HTTP client gets these hints, any
// other client the next steps of package errcode. The bridge has no tools for those with *.
var hintsForHTTP = map[string]string{
	"GET /v1/approvals lists pending calls": errcode.UnknownApproval,
	"GET /v1/dead lists them":               errcode.NotRedrivable,
	"submit it again as a new task: GET /v1/tasks/{id}/submission returns its submission": errcode.NotRetryable,
	"GET /v1/%ss lists them":          errcode.UnknownAutomation,
	"GET /v1/skills lists the skills": errcode.UnknownSkill,
	"GET /v1/sessions lists sessions; the session is known once a task that names it has ended": errcode.UnknownSession,
	"GET /v1/tools lists the tools":                                            errcode.UnknownTool,
	"GET /v1/workflows/runs lists the runs":                                    errcode.UnknownRun,
	"GET /v1/workflows/runs lists them: cancel some":                           errcode.AutomationLimit,
	"GET /v1/tokens lists the tokens; those of the settings are removed there": "*" + errcode.UnknownToken,
	"GET /v1/fleet lists the workers":                                          "*" + errcode.UnknownWorker,
}

// TestErrorsNameNoCommand checks for each error code that an error reaches an MCP client without advice to type a
// command, because the client has no command line.
func TestErrorsNameNoCommand(t *testing.T) {
	for _, g := range errcode.Table {
		for _, e := range g.Errors {
			refused := errorResult(&client.APIError{Status: 400, Code: e.Code, Message: "message", Hint: "hint"})
			var rec client.Record
			ended := `{"status": "failed", "result": {"error": {"code": "` + e.Code + `", "message": "m", "hint": "hint"}}}`
			if err := json.Unmarshal([]byte(ended), &rec); err != nil {
				t.Fatal(err)
			}
			for _, r := range []*result{refused, endedTask(rec, viewOptions{verbose: true}, 4000)} {
				encoded, err := r.encode()
				if err != nil {
					t.Fatal(err)
				}
				content, _ := marshal(encoded.Content)
				want := "hint"
				if step := errcode.Next(e.Code).Tool; step != "" {
					want = step
				}
				if text := string(content); command.MatchString(text) || !strings.Contains(text, want) {
					t.Errorf("%s: an MCP client gets %s, want %q and no command", e.Code, text, want)
				}
			}
		}
	}
}

// TestTextsNameNoCommand checks that the packages and Python modules whose texts reach clients name no command, and no
// HTTP route unless package errcode has another text for clients that do not use HTTP.
func TestTextsNameNoCommand(t *testing.T) {
	packages := []string{
		"internal/apierror", "internal/automation", "internal/bridge", "internal/codegen", "internal/cron",
		"internal/egress", "internal/executor", "internal/expression", "internal/guardrails", "internal/ingest",
		"internal/jobs", "internal/pipeline", "internal/selection", "internal/skills", "internal/state",
		"internal/statedoc", "internal/toolbox", "internal/tools", "internal/toolsearch", "internal/workflow",
		"schemas",
	}
	exceptions := []string{
		// With these an MCP client tells its user how to approve a call.
		"codefleet approve ", "a tool call waits for approval: codefleet approve %s %s",
		"A program that runs in codefleet wants to call %s/%s.\n%s\n",
		"codefleet mcp test",                                   // the name of a client
		"codefleet privacy 1 %s %q", "codefleet workspaces 1 ", // from which keys are derived
		"codefleet probe", // content of an object
		"mirror update failed; the next commit, or codefleet workspace mirror, tries again", // a log message
	}
	found := map[string]bool{}
	for _, f := range sourcetest.GoFiles(t) {
		if f.Test || !slices.ContainsFunc(packages, func(p string) bool {
			return f.Package == p || strings.HasPrefix(f.Package, p+"/")
		}) {
			continue
		}
		_, tree := sourcetest.Parse(t, f, 0)
		for n := range ast.Preorder(tree) {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if found[text] = true; command.MatchString(text) && !slices.Contains(exceptions, text) {
				t.Errorf("%s: %q names a command, want it in errcode.Next", f.Path, text)
			}
			if route.MatchString(text) {
				code, withoutTool := strings.CutPrefix(hintsForHTTP[text], "*")
				next := errcode.Next(code)
				if next.Command == "" || next.Tool == "" && !withoutTool {
					t.Errorf("%s: %q names an HTTP route, want other texts in errcode.Next", f.Path, text)
				}
			}
		}
	}
	for _, text := range slices.AppendSeq(exceptions, maps.Keys(hintsForHTTP)) {
		if !found[text] {
			t.Errorf("no package has the text %q: remove it from this test", text)
		}
	}
	for _, dir := range []string{"internal/executor/runner", "internal/skills", "servers"} {
		root := os.DirFS(filepath.Join(sourcetest.Root(t), dir))
		err := fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".py" {
				return err
			}
			source, err := fs.ReadFile(root, name)
			source = bytes.ReplaceAll(source, []byte("from codefleet import"), nil)
			if found := command.Find(source); found != nil {
				t.Errorf("%s/%s names the command %q, want it in errcode.Next", dir, name, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
