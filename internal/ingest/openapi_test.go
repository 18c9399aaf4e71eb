package ingest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
)

var update = flag.Bool("update", false, "write docs/http.md")

// openAPI is the part of the document that the tests use.
type openAPI struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]any }
}

type operation struct {
	OperationID string
	Summary     string
	Tags        []string
	Parameters  []struct {
		Name, In string
		Schema   any
	}
	Security    []map[string][]string
	RequestBody struct{ Content map[string]any }
	Responses   map[string]struct{ Description string }
}

func readDocument(t *testing.T) ([]byte, openAPI) {
	t.Helper()
	w := httptest.NewRecorder()
	ingest.New(ingest.Options{Telemetry: ingest.Telemetry{Log: slog.New(slog.DiscardHandler)}}).
		Handler().
		ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("GET /openapi.json = %d %s, want 200 application/json", w.Code, w.Header())
	}
	var d openAPI
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	return w.Body.Bytes(), d
}

// TestOpenAPIIsValid checks the document against the meta-schema of OpenAPI 3.1, and that every component is
// a JSON Schema whose references resolve.
func TestOpenAPIIsValid(t *testing.T) {
	data, d := readDocument(t)
	doc, err := libopenapi.NewDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, problems := v.ValidateDocument(); !ok {
		for _, p := range problems {
			t.Errorf("ValidateDocument: %s: %s %v, want a valid document",
				p.Message, p.Reason, p.SchemaValidationErrors)
		}
	}
	var root any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", root); err != nil {
		t.Fatal(err)
	}
	for name := range d.Components.Schemas {
		if _, err := c.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("compile component %s = %v, want nil", name, err)
		}
	}
	for _, ref := range refsOf(root) {
		if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); !ok ||
			d.Components.Schemas[strings.Split(name, "/")[0]] == nil {
			t.Errorf("reference is %s, want a component", ref)
		}
	}
	ids := map[string]bool{}
	for path, item := range d.Paths {
		for method, o := range item {
			if ids[o.OperationID] {
				t.Errorf("%s %s: operationId %s occurs twice, want it unique", method, path, o.OperationID)
			}
			ids[o.OperationID] = true
		}
	}
}

func refsOf(v any) (refs []string) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			refs = append(refs, ref)
		}
		for _, child := range v {
			refs = append(refs, refsOf(child)...)
		}
	case []any:
		for _, child := range v {
			refs = append(refs, refsOf(child)...)
		}
	}
	return refs
}

// failing maps each operation to a request that fails, and its error code.
var failing = map[string]struct {
	method, path, token, body string
	want                      string
}{
	"submitTask":       {"POST", "/v1/tasks", ingesttest.Token, `{}`, errcode.BadData},
	"listTasks":        {"GET", "/v1/tasks?limit=0", ingesttest.Token, "", errcode.BadParameter},
	"getTask":          {"GET", "/v1/tasks/x", ingesttest.Token, "", errcode.UnknownTask},
	"cancelTask":       {"DELETE", "/v1/tasks/x", ingesttest.Token, "", errcode.UnknownTask},
	"watchTask":        {"GET", "/v1/tasks/x/events", ingesttest.Token, "", errcode.UnknownTask},
	"getArtifact":      {"GET", "/v1/tasks/x/artifacts/a", ingesttest.Token, "", errcode.UnknownTask},
	"listDead":         {"GET", "/v1/dead?limit=x", ingesttest.Token, "", errcode.BadParameter},
	"redriveTask":      {"POST", "/v1/tasks/x/redrive", ingesttest.Token, "", errcode.UnknownTask},
	"redriveDead":      {"POST", "/v1/dead/redrive?seq=x", ingesttest.Token, "", errcode.BadParameter},
	"listAudit":        {"GET", "/v1/audit?task=x", ingesttest.Token, "", errcode.BadParameter},
	"fillForm":         {"POST", "/v1/forms/fill", ingesttest.Token, `{}`, errcode.BadData},
	"submitEvents":     {"POST", "/v1/events", ingesttest.Token, `{}`, errcode.BadMediaType},
	"allowEvents":      {"OPTIONS", "/v1/events", ingesttest.ReadOnly, "", errcode.Forbidden},
	"listApprovals":    {"GET", "/v1/approvals", ingesttest.Operator, "", errcode.Forbidden},
	"answerApproval":   {"POST", "/v1/tasks/x/approvals", ingesttest.Token, `{"approve":true}`, errcode.UnknownTask},
	"listTools":        {"GET", "/v1/tools", ingesttest.Token, "", errcode.NoTools},
	"searchTools":      {"GET", "/v1/tools/search?q=x", ingesttest.Token, "", errcode.NoTools},
	"getTool":          {"GET", "/v1/tools/a/b", ingesttest.Token, "", errcode.NoTools},
	"registerTools":    {"POST", "/v1/registrations", ingesttest.Token, `{"server":"A"}`, errcode.BadData},
	"validateWorkflow": {"POST", "/v1/workflows/validate", ingesttest.Token, `{}`, errcode.BadWorkflow},
	"startRun":         {"POST", "/v1/workflows/runs", ingesttest.Token, `{}`, errcode.BadWorkflow},
	"listRuns":         {"GET", "/v1/workflows/runs?limit=0", ingesttest.Token, "", errcode.BadParameter},
	"getRun":           {"GET", "/v1/workflows/runs/x", ingesttest.Token, "", errcode.UnknownRun},
	"cancelRun":        {"POST", "/v1/workflows/runs/x/cancel", ingesttest.Token, "", errcode.UnknownRun},
	"answerRun":        {"POST", "/v1/workflows/runs/x/answer", ingesttest.Token, `{"step":"a"}`, errcode.UnknownRun},
	"rerunRun":         {"POST", "/v1/workflows/runs/x/rerun", ingesttest.Token, `{"from":"a"}`, errcode.UnknownRun},
	"answerToolCall": {
		"POST", "/v1/registrations/x/answers", ingesttest.Token, `{"call":"x"}`, errcode.UnknownRegistration,
	},
	"listSkills": {"GET", "/v1/skills", ingesttest.Token, "", errcode.NoWorkspaces},
	"getSkill":   {"GET", "/v1/skills/a", ingesttest.Token, "", errcode.NoWorkspaces},
	"listSkillVersions": {
		"GET", "/v1/skills/a/versions", ingesttest.Token, "", errcode.NoWorkspaces,
	},
	"saveSkill":     {"PUT", "/v1/skills/a", ingesttest.Token, `{}`, errcode.NoWorkspaces},
	"deleteSkill":   {"DELETE", "/v1/skills/a", ingesttest.Token, "", errcode.NoWorkspaces},
	"listWebhooks":  {"GET", "/v1/webhooks", ingesttest.Operator, "", errcode.Forbidden},
	"addWebhook":    {"POST", "/v1/webhooks", ingesttest.Token, `{"name":"w","url":"x"}`, errcode.BadData},
	"deleteWebhook": {"DELETE", "/v1/webhooks/x", ingesttest.Token, "", errcode.UnknownAutomation},
	"listTriggers":  {"GET", "/v1/triggers", ingesttest.Operator, "", errcode.Forbidden},
	"addTrigger":    {"POST", "/v1/triggers", ingesttest.Token, `{"name":"t","type":"x"}`, errcode.BadData},
	"getTrigger":    {"GET", "/v1/triggers/x", ingesttest.Token, "", errcode.UnknownAutomation},
	"deleteTrigger": {"DELETE", "/v1/triggers/x", ingesttest.Token, "", errcode.UnknownAutomation},
	"testTrigger":   {"POST", "/v1/triggers/x/test", ingesttest.Token, `{}`, errcode.BadEvent},
	"listSessions":  {"GET", "/v1/sessions?limit=0", ingesttest.Token, "", errcode.BadParameter},
	"getSession":    {"GET", "/v1/sessions/nosuch", ingesttest.Token, "", errcode.UnknownSession},
	"saveCheckpoint": {
		"POST", "/v1/sessions/nosuch/checkpoints", ingesttest.Token, `{"step": 1}`, errcode.UnknownSession,
	},
	"resumeSession":    {"POST", "/v1/sessions/_x/resume", ingesttest.Token, `{}`, errcode.BadName},
	"listSchedules":    {"GET", "/v1/schedules", ingesttest.Operator, "", errcode.Forbidden},
	"addSchedule":      {"POST", "/v1/schedules", ingesttest.Token, `{"name":"s","cron":"x"}`, errcode.BadData},
	"getSchedule":      {"GET", "/v1/schedules/x", ingesttest.Token, "", errcode.UnknownAutomation},
	"deleteSchedule":   {"DELETE", "/v1/schedules/x", ingesttest.Token, "", errcode.UnknownAutomation},
	"pauseSchedule":    {"POST", "/v1/schedules/x/pause", ingesttest.Token, "", errcode.UnknownAutomation},
	"resumeSchedule":   {"POST", "/v1/schedules/x/resume", ingesttest.Token, "", errcode.UnknownAutomation},
	"runSchedule":      {"POST", "/v1/schedules/x/run", ingesttest.Token, "", errcode.UnknownAutomation},
	"listWorkspaces":   {"GET", "/v1/workspaces", ingesttest.Operator, "", errcode.Forbidden},
	"getWorkspace":     {"GET", "/v1/workspaces/_A", ingesttest.Token, "", errcode.BadName},
	"deleteWorkspace":  {"DELETE", "/v1/workspaces/_A", ingesttest.Token, "", errcode.BadName},
	"listCommits":      {"GET", "/v1/workspaces/_A/log", ingesttest.Token, "", errcode.BadName},
	"diffWorkspace":    {"GET", "/v1/workspaces/main/diff", ingesttest.Token, "", errcode.BadParameter},
	"restoreWorkspace": {"POST", "/v1/workspaces/main/restore", ingesttest.Token, `{}`, errcode.BadParameter},
	"forkWorkspace":    {"POST", "/v1/workspaces/main/fork", ingesttest.Token, `{"to":"_A"}`, errcode.BadName},
	"checkWorkspace":   {"POST", "/v1/workspaces/main/check", ingesttest.Token, `{"of":999}`, errcode.BadParameter},
	"repairWorkspace":  {"POST", "/v1/workspaces/_A/repair", ingesttest.Token, `{}`, errcode.BadName},
	"mirrorWorkspace":  {"POST", "/v1/workspaces/main/mirror", ingesttest.Token, "", errcode.NoMirror},
	"listPins":         {"GET", "/v1/workspaces/_A/pins", ingesttest.Token, "", errcode.BadName},
	"putPin":           {"PUT", "/v1/workspaces/main/pins/7", ingesttest.Token, `{}`, errcode.BadParameter},
	"deletePin":        {"DELETE", "/v1/workspaces/main/pins/7", ingesttest.Token, "", errcode.BadParameter},
	"listFiles":        {"GET", "/v1/workspaces/_A/files", ingesttest.Token, "", errcode.BadName},
	"commitFiles":      {"POST", "/v1/workspaces/main/files", ingesttest.Token, `{}`, errcode.BadMediaType},
	"getFile":          {"GET", "/v1/workspaces/main/files/a", ingesttest.Token, "", errcode.UnknownFile},
	"putFile":          {"PUT", "/v1/workspaces/main/files/a%00", ingesttest.Token, "x", errcode.BadPath},
	"deleteFile":       {"DELETE", "/v1/workspaces/main/files/a", ingesttest.Token, "", errcode.UnknownFile},
	"getArchive":       {"GET", "/v1/workspaces/main/archive?format=rar", ingesttest.Token, "", errcode.BadParameter},
	"getArchiveOf":     {"POST", "/v1/workspaces/_A/archive", ingesttest.Token, `{}`, errcode.BadName},
	"getDefaultState":  {"GET", "/v1/state", ingesttest.Token, "", errcode.UnknownState},
	"putDefaultState":  {"PUT", "/v1/state", ingesttest.Token, `[]`, errcode.BadState},
	"getState":         {"GET", "/v1/state/a.txt", ingesttest.Token, "", errcode.BadStateFile},
	"putState":         {"PUT", "/v1/state/a.txt", ingesttest.Token, `{}`, errcode.BadStateFile},
	"getFleet":         {"GET", "/v1/fleet", ingesttest.ReadOnly, "", errcode.Forbidden},
	"getBacklog":       {"GET", "/v1/fleet/backlog?within=0s", ingesttest.Operator, "", errcode.BadParameter},
	"whyTask":          {"GET", "/v1/tasks/x/why", ingesttest.Token, "", errcode.UnknownTask},
	"listPauses":       {"GET", "/v1/pauses", ingesttest.ReadOnly, "", errcode.Forbidden},
	"pause":            {"POST", "/v1/pause", ingesttest.Operator, `{"target":"x"}`, errcode.BadName},
	"resume":           {"POST", "/v1/resume", ingesttest.Operator, `{"target":"tenant/"}`, errcode.BadName},
	"listLimits":       {"GET", "/v1/limits", ingesttest.ReadOnly, "", errcode.Forbidden},
	"getLimits":        {"GET", "/v1/limits/A.b", ingesttest.Operator, "", errcode.BadName},
	"changeLimits":     {"PATCH", "/v1/limits/acme", ingesttest.Operator, `{"backlog":0}`, errcode.BadData},
	"putLimits":        {"PUT", "/v1/limits/acme", ingesttest.Operator, `{"weight":0}`, errcode.BadData},
	"getDeadLetter":    {"GET", "/v1/dead/x", ingesttest.Token, "", errcode.UnknownTask},
	"getSubmission":    {"GET", "/v1/tasks/x/submission", ingesttest.Token, "", errcode.UnknownTask},
	"retryTask":        {"POST", "/v1/tasks/x/retry", ingesttest.Token, "", errcode.UnknownTask},
	"drainWorker":      {"POST", "/v1/workers/x/drain", ingesttest.Operator, "", errcode.UnknownWorker},
	"listTenants":      {"GET", "/v1/tenants", ingesttest.ReadOnly, "", errcode.Forbidden},
	"putTenant":        {"PUT", "/v1/tenants/A.b", ingesttest.Operator, "", errcode.BadName},
	"deleteTenant":     {"DELETE", "/v1/tenants/A.b", ingesttest.Operator, "", errcode.BadName},
	"listTokens":       {"GET", "/v1/tokens", ingesttest.ReadOnly, "", errcode.Forbidden},
	"createToken":      {"POST", "/v1/tokens", ingesttest.Operator, `{"scopes":["x"]}`, errcode.BadData},
	"revokeToken":      {"DELETE", "/v1/tokens/x", ingesttest.Operator, "", errcode.UnknownToken},
	"listUsage":        {"GET", "/v1/usage?since=x", ingesttest.Token, "", errcode.BadParameter},
	"createPageLink":   {"POST", "/v1/page/links", "wrong", "", errcode.Unauthorized},
	"whoAmI":           {"GET", "/v1/whoami", "wrong", "", errcode.Unauthorized},
	"getSchema":        {"GET", "/v1/schemas/x", "", "", errcode.UnknownSchema},
}

// neverFail lists the operations that always succeed, or that another handler serves.
var neverFail = []string{
	"root", "page", "pagePost", "getOpenAPI", "health", "healthz", "readyz", "getMetrics", "mcp", "mcpPost",
	"mcpDelete", "mcpSSE", "mcpSSEPost", "mcpRegister",
}

// noPage is a web page that serves nothing.
type noPage struct{ http.Handler }

func (noPage) Code(string) string { return "" }
func (noPage) Drain()             {}

// TestErrorsAsDocumented makes every operation fail. ingesttest checks that the document has the responses.
func TestErrorsAsDocumented(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Mounted.Page = noPage{} })
	_, d := readDocument(t)
	for path, item := range d.Paths {
		for method, o := range item {
			c, ok := failing[o.OperationID]
			if !ok && !slices.Contains(neverFail, o.OperationID) {
				t.Errorf("%s %s: operation %s has no row in failing, want one", method, path, o.OperationID)
			}
			if !ok {
				continue
			}
			if c.token != "" && c.token != "wrong" { // the route requires a token
				if code := errorCode(t, f, c.method, c.path, "", c.body); code != errcode.Unauthorized {
					t.Errorf("%s without a token: error %q, want %s", o.OperationID, code, errcode.Unauthorized)
				}
			}
			if code := errorCode(t, f, c.method, c.path, c.token, c.body); code != c.want {
				t.Errorf("%s: error %q, want %s", o.OperationID, code, c.want)
			}
		}
	}
	for id := range failing {
		if !hasOperation(d, id) {
			t.Errorf("operation %s is not documented, want it in the document", id)
		}
	}
}

func hasOperation(d openAPI, id string) bool {
	for _, item := range d.Paths {
		for _, o := range item {
			if o.OperationID == id {
				return true
			}
		}
	}
	return false
}

func errorCode(t *testing.T, f *ingesttest.Fleet, method, path, token, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Code string }
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatalf("%s %s = %d %q: decode = %v, want nil", method, path, resp.StatusCode, text, err)
	}
	return e.Code
}

const (
	page  = "../../docs/http.md"
	begin = "<!-- begin routes: go test ./internal/ingest -run TestPage -update -->\n"
	end   = "<!-- end routes -->\n"
)

// TestPage checks that the tables of docs/http.md agree with the document. With -update it writes them.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the markers around its tables, want both", page)
	}
	_, d := readDocument(t)
	tables := renderTables(d)
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+tables+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(tables, old); diff != "" {
		t.Errorf("%s is out of date, run with -update (-want +got):\n%s", page, diff)
	}
}

// renderTables returns one table of operations for each tag.
func renderTables(d openAPI) string {
	type row struct{ address, text string }
	rows := map[string][]row{}
	methods := []string{"get", "post", "put", "patch", "delete", "options"}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			o, ok := d.Paths[path][method]
			if !ok {
				continue
			}
			r := row{address: fmt.Sprintf("`%s %s`", strings.ToUpper(method), path)}
			r.text = fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.address, o.Summary, scopeOf(o), parametersOf(o),
				codesOf(o))
			rows[o.Tags[0]] = append(rows[o.Tags[0]], r)
		}
	}
	var b strings.Builder
	for _, tag := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "\n### %s\n\n| request | | scope | parameters | error codes |\n|---|---|---|---|---|\n", tag)
		for _, r := range rows[tag] {
			b.WriteString(r.text)
		}
	}
	b.WriteString("\n")
	return b.String()
}

func scopeOf(o operation) string {
	if len(o.Security) == 0 {
		return "–"
	}
	if scopes := o.Security[0]["token"]; len(scopes) > 0 {
		return scopes[0]
	}
	return "any token"
}

func parametersOf(o operation) string {
	var names []string
	for _, p := range o.Parameters {
		if p.In != "path" {
			names = append(names, "`"+p.Name+"`")
		}
	}
	return strings.Join(names, ", ")
}

// codesOf lists the error codes of an operation, without those that all operations have.
func codesOf(o operation) string {
	var codes []string
	for status, r := range o.Responses {
		if status < "400" || status == "416" {
			continue
		}
		for code := range strings.SplitSeq(r.Description, ", ") {
			switch code {
			case errcode.HostRefused, errcode.OriginRefused, errcode.Internal, errcode.Unauthorized, errcode.Forbidden:
			default:
				codes = append(codes, "`"+code+"`")
			}
		}
	}
	slices.Sort(codes)
	return strings.Join(codes, ", ")
}
