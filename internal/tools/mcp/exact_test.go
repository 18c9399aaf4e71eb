package mcp

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// TestExactResult checks that a list of tools has the schemas exactly as the server sent them, also if it has
// structured content, that a malformed tool does not affect the others, that a server cannot make up why a tool is
// malformed, and that names may be escaped.
func TestExactResult(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"maximum":9007199254740993},"a":{},"m":{"b":1,"a":2}}}`
	message := `{"jsonrpc":"2.0","id":1,"result":{"nextCursor":"c","tools":[` +
		`{"name":"both","inputSchema":` + schema + `,"outputSchema":` + schema + `},` +
		`{"name":"escaped","input\u0053chema":` + schema + `},{"name":"number","inputSchema":5},` +
		`{"name":"hint","inputSchema":{},"annotations":{"readOnlyHint":"true"}},` +
		`{"name":"list","annotations":[]},{"name":["x"],"inputSchema":{}},null,7,` +
		`{"name":"marked","inputSchema":"\u0000malformed:text","outputSchema":"\u0000exact:{}"}` +
		`],"structuredContent":{}}}`
	exact, err := decodable([]byte(message), nil)
	var got struct {
		Result sdk.ListToolsResult
	}
	if err != nil || json.Unmarshal(exact, &got) != nil || got.Result.NextCursor != "c" {
		t.Fatalf("decodable = %s, %v, want a list with the cursor c", exact, err)
	}
	raw := json.RawMessage(schema)
	want := []tools.Definition{
		{Name: "both", InputSchema: raw, OutputSchema: raw},
		{Name: "escaped", InputSchema: raw},
		{Name: "number", InputSchema: json.RawMessage("5")},
		{Name: "hint", Problem: `a value in its "annotations" has the wrong type`},
		{Name: "list", Problem: `a value in its "annotations" has the wrong type`},
		{Problem: `a value in its "name" has the wrong type`},
		{Problem: "it is not a JSON object"},
		{Problem: "it is not a JSON object"},
		{
			Name: "marked", InputSchema: json.RawMessage(`"\u0000malformed:text"`),
			OutputSchema: json.RawMessage(`"\u0000exact:{}"`),
		},
	}
	var defs []tools.Definition
	for _, tool := range got.Result.Tools {
		d, err := definition(tool)
		if err != nil {
			t.Errorf("definition(%+v) = %v, want nil", tool, err)
		}
		defs = append(defs, d)
	}
	if diff := cmp.Diff(want, defs); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}

	var call struct {
		Result sdk.CallToolResult
	}
	escaped := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structured\u0043ontent":{"n":9007199254740993}}}`
	if err := json.Unmarshal(exactResult([]byte(escaped)), &call); err != nil {
		t.Fatal(err)
	}
	if got, err := rawJSON(call.Result.StructuredContent); string(got) != `{"n":9007199254740993}` || err != nil {
		t.Errorf("structured content = %s, %v, want all digits", got, err)
	}
	long := exactResult([]byte(`{"result":{"tools":[` + strings.Repeat("1,", 1<<20) + `1]}}`))
	if json.Unmarshal(long, &got) != nil || len(got.Result.Tools) != maxListed+1 {
		t.Errorf("a list of 2^20+1 tools has %d bytes and %d tools, want %d tools", len(long), len(got.Result.Tools),
			maxListed+1)
	}
	for _, other := range []string{
		`{"inputSchema":1}`, `{"result":{"tools":{"inputSchema":{}}}}`, `{"result":[{"tools":{}}]}`,
		`{"result":{"structuredContent":null}}`, `{"result":{"text":"\u0041"}}`,
	} {
		if got := string(exactResult([]byte(other))); got != other {
			t.Errorf("exactResult(%s) = %s, want it unchanged", other, got)
		}
	}
}

func TestEventReader(t *testing.T) {
	const (
		message = `{"id":1,"jsonrpc":"2.0","result":{"structuredContent":{"n":9007199254740993}}}`
		exact   = `{"id":1,"jsonrpc":"2.0","result":{"structuredContent":"\u0000exact:{\"n\":9007199254740993}"}}`
		limit   = 200
	)
	long := strings.Repeat("x", limit/2)
	for _, tt := range []struct {
		name, in, want string
		err            error
	}{
		{"other lines", ": comment\nevent: message\nid: 1\n\n", ": comment\nevent: message\nid: 1\n\n", nil},
		{"other data", "data: a\ndata:b\n\ndata: c\n\n", "data: a\ndata:b\n\ndata: c\n\n", nil},
		{"structured content", "id: 1\ndata: " + message + "\n\n", "id: 1\ndata: " + exact + "\n\n", nil},
		{
			"several lines", "data: " + message[:8] + "\ndata: " + message[8:] + "\r\n\r\n",
			"data: " + exact + "\n\n", nil,
		},
		{"byte order mark", "\ufeffdata: " + message + "\n\ndata: a", "data: " + exact + "\n\ndata: a", nil},
		{"CR", "id: 1\rdata: " + message + "\r\rdata: a\r\r", "id: 1\ndata: " + exact + "\n\ndata: a\n\n", nil},
		{"end without an empty line", "data: " + message, "data: " + exact + "\n", nil},
		{
			"malformed result", `data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"image","data":"%"}]}}` + "\n\n",
			`data: {"jsonrpc":"2.0","id":1,"error":{"code":-32098,"message":"the response is malformed: ` +
				`illegal base64 data at input byte 0"}}` + "\n\n", nil,
		},
		{"large line", "data: a\n\ndata: " + long + long + "\n\ndata: b\n\n", "data: a\n\n", errTooLarge},
		{"large event", "data: a\n\n" + strings.Repeat("data: "+long+"\n", 9) + "\n", "data: a\n\n", errTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newEventReader(io.NopCloser(strings.NewReader(tt.in)), limit)
			got, err := io.ReadAll(r)
			if !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if n, again := r.Read(make([]byte, 1)); n > 0 || again == nil {
				t.Errorf("Read after the end = %d, %v; want 0 and an error", n, again)
			}
		})
	}
}

// TestResourceWithoutContent checks that content which the fleet cannot convert is an error: a text in its place would
// look like a text of the tool.
func TestResourceWithoutContent(t *testing.T) {
	res := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "x"}, &sdk.EmbeddedResource{}}}
	got, err := convert(tools.Request{Server: "s"}, res)
	failure, ok := errors.AsType[*tools.UpstreamError](err)
	if !ok || failure.Reason != tools.Protocol || !failure.Sent {
		t.Errorf("convert() = %+v, %v, want an UpstreamError of the protocol", got, err)
	}
}

// TestResourceLink checks that what a server says about a resource reaches the program with the link.
func TestResourceLink(t *testing.T) {
	link := &sdk.ResourceLink{
		URI: "x:/y", Name: "y", Title: "Why", Description: "All reasons.", MIMEType: "text/plain", Size: new(int64(5)),
	}
	got, err := convert(tools.Request{Server: "s"}, &sdk.CallToolResult{Content: []sdk.Content{link}})
	want := []tools.Content{{
		Type: "resource_link", Text: "y", MediaType: "text/plain", URI: "x:/y", Title: "Why",
		Description: "All reasons.", Size: new(int64(5)),
	}}
	if diff := cmp.Diff(want, got.Content); diff != "" || err != nil {
		t.Errorf("convert() = %v (-want +got):\n%s", err, diff)
	}
}
