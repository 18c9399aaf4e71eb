package bridge_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
)

// TestExposed checks that exposed tools are listed while their processes run, that a task calls them, and that invalid
// definitions are omitted.
func TestExposed(t *testing.T) {
	var list atomic.Value
	var submitted atomic.Value
	fleet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/whoami":
			_, _ = w.Write([]byte(`{"name":"t","tenant":"default","scopes":["read","submit"]}`))
		case "/v1/tools":
			if r.URL.Query().Get("exposed") != "true" {
				t.Errorf("request for %s, want exposed=true", r.URL)
			}
			_, _ = w.Write([]byte(list.Load().(string)))
		case "/v1/tasks":
			body, _ := io.ReadAll(r.Body)
			submitted.Store(string(body))
			_, _ = w.Write([]byte(
				`{"task_id":"a2wntt52fwmbq3ezlg6zelfsfu","status":"succeeded",` +
					`"result":{"status":"succeeded","result":{"found":7}}}`,
			))
		}
	}))
	defer fleet.Close()
	tool := func(server, name, schema, more string) string {
		return `{"id":"` + server + `/` + name + `","server":"` + server + `","name":"` + name +
			`","state":"registered","hash":"of ` + name + `","input_schema":` + schema + more + `}`
	}
	const object = `{"type":"object"}`
	list.Store(`{"tools":[` + strings.Join([]string{
		tool("crm", "find", `{"type":"object","properties":{"id":{"type":"integer"}}}`,
			`,"description":"Find.\u202E\u200b"`),
		tool("crm", "array", `{"type":"array"}`, ``),
		tool("crm", "header", `{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"bad header"}}}`, ``),
		tool("crm", "null", `null`, ``),
		tool("crm", "number", `7`, ``),
		tool("crm", strings.Repeat("x", 64), object, ``),
		tool("crm", "large", `{"type":"object","description":"`+strings.Repeat("x", 40<<10)+`"}`, ``),
		tool("a", "b__c", object, ``),
		tool("a__b", "c", object, ``), // has the same name in the bridge as the previous tool
	}, ",") + `]}`)
	cs, _ := stdio(t, bridge.Options{Fleet: client.Options{URL: fleet.URL, Token: "t"}}, nil)
	names := func() (out []string) {
		l, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range l.Tools {
			if strings.Contains(tool.Name, "__") {
				out = append(out, tool.Name+" "+tool.Description)
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"a__b__c ", "crm__find Find.<U+202E><U+200B>"}, names()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "crm__find", Arguments: map[string]any{"id": 7}})
	if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != `{"found":7}` {
		t.Errorf("crm__find = %+v, %v; want {\"found\":7}", r, err)
	}
	var task client.Submission
	if err := json.Unmarshal([]byte(submitted.Load().(string)), &task); err != nil {
		t.Fatal(err)
	}
	const code = "from client.mcp_client import call_mcp_tool\nresult = call_mcp_tool(\"crm\", \"find\", inputs)\n"
	if task.Code != code || string(task.Inputs) != `{"id":7}` ||
		cmp.Diff([]string{"crm/find"}, task.Tools.Allow) != "" {
		t.Errorf("submitted task = %+v, want a program that calls crm/find with the arguments, and may call only that",
			task.Task)
	}
	list.Store(`{"tools":[]}`)
	eventually(t, "the tool is removed", func() bool {
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "crm__find"})
		return err != nil && strings.Contains(err.Error(), "unknown tool")
	})
	// The first client may use its cached list.
	cs, _ = stdio(t, bridge.Options{Fleet: client.Options{URL: fleet.URL, Token: "t"}}, nil)
	if got := names(); len(got) > 0 {
		t.Errorf("exposed tools = %v, want none", got)
	}
}
