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

// TestSchemasKeepTheirOrder checks that a list of tools has the input schemas exactly as the server sent them.
func TestSchemasKeepTheirOrder(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"maximum":9007199254740993},"a":{},"m":{"b":1,"a":2}}}`
	message := `{"jsonrpc":"2.0","id":1,"result":{"nextCursor":"c","tools":[{"name":"t","inputSchema":` + schema +
		`},{"name":"u","inputSchema":5}]}}`
	var got struct {
		Result struct {
			NextCursor string
			Tools      []struct {
				Name        string
				InputSchema any
			}
		}
	}
	if err := json.Unmarshal(exactSchemas([]byte(message)), &got); err != nil || len(got.Result.Tools) != 2 {
		t.Fatalf("exactSchemas = %+v, %v, want 2 tools", got, err)
	}
	for i, want := range []string{schema, "5"} {
		if raw, err := schemaOf(got.Result.Tools[i].InputSchema); err != nil || string(raw) != want {
			t.Errorf("schema %d = %s, %v, want %s", i, raw, err, want)
		}
	}
	if got.Result.NextCursor != "c" {
		t.Errorf("cursor = %q, want c", got.Result.NextCursor)
	}
	for _, other := range []string{
		`{"inputSchema":1}`, `{"result":{"tools":{"inputSchema":{}}}}`, `{"result":[{"inputSchema":{}}]}`,
	} {
		if got := string(exactSchemas([]byte(other))); got != other {
			t.Errorf("exactSchemas(%s) = %s, want it unchanged", other, got)
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
			"data: " + exact + "\n\r\n", nil,
		},
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
