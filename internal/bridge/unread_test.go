package bridge_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestUnclearArgumentsAreRefused checks that arguments are refused that JSON decoders read differently (a name that
// occurs twice, or in another case), and empty ones, which would count as not given.
func TestUnclearArgumentsAreRefused(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	for _, c := range []struct{ tool, args, want string }{
		{"execute_task", `{"code":"print a","code":"print b"}`, "/code: the name occurs twice"},
		{"execute_task", `{"code":"1","inputs":{"a":1,"a":2}}`, "/inputs/a: the name occurs twice"},
		{"execute_task", `{"code":"1","Workspace":"other"}`, "Workspace"},
		{"execute_task", `{"code":"1","tools":[]}`, "tools is empty"},
		{"execute_task", `{"code":"1","workspace":""}`, "workspace is empty"},
		{"save_state", `{"state_data":{},"if_version":""}`, "if_version is empty"},
		{"execute_task", `{"code":"1","idempotency_key":""}`, "idempotency_key is empty"},
		{"add_trigger", `{"name":"t","type":"a.b","code":"1","filter":""}`, "filter is empty"},
		{"add_trigger", `{"name":"t","type":"a.b","code":"1","source":""}`, "source is empty"},
		{"redrive_tasks", `{"cause":""}`, "cause is empty"},
	} {
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := r.Content[0].(*mcp.TextContent)
		if !r.IsError || !strings.Contains(text.Text, c.want) {
			t.Errorf("%s %s = %s, want an error with %q", c.tool, c.args, text.Text, c.want)
		}
	}
}
