package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
)

// callTool implements the script command
//
//	mcp stdio|http|sse|compact TOOL|list ARGUMENTS    call a tool as an MCP client does
//
// It prints the structured content, the text and the resource links, each on its own line. With list it prints the
// names of the tools.
func callTool(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "script", Version: "1"}, nil)
	cs, err := c.Connect(ctx, transport(ts, args[0]), nil)
	ts.Check(err)
	defer cs.Close()
	printLine := func(text string) { _, _ = ts.Stdout().Write([]byte(text + "\n")) }
	if args[1] == "list" {
		if neg {
			ts.Fatalf("list has no negation")
		}
		l, err := cs.ListTools(ctx, nil)
		ts.Check(err)
		for _, t := range l.Tools {
			printLine(t.Name)
		}
		return
	}
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{
		Name: args[1], Arguments: json.RawMessage(strings.Join(args[2:], " ")),
	})
	ts.Check(err)
	if r.IsError != neg {
		ts.Fatalf("%s: isError = %v, want %v: %v", args[1], r.IsError, neg, r.StructuredContent)
	}
	structured, err := json.Marshal(r.StructuredContent)
	ts.Check(err)
	printLine(string(structured))
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			printLine(c.Text)
		case *mcp.ResourceLink:
			printLine("link " + c.URI)
			got, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: c.URI})
			ts.Check(err)
			printLine("content " + got.Contents[0].Text)
		}
	}
}

func transport(ts *testscript.TestScript, kind string) mcp.Transport {
	if kind == "stdio" {
		cmd := exec.Command("codefleet", "mcp")
		cmd.Dir, cmd.Stderr = ts.MkAbs("."), os.Stderr
		for _, name := range []string{"PATH", "HOME", "XDG_DATA_HOME"} {
			cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
		}
		return &mcp.CommandTransport{Command: cmd}
	}
	fleet, err := client.ReadFleetFile(ts.MkAbs("codefleet/fleet.json"))
	ts.Check(err)
	h := &http.Client{Transport: bearer(fleet.Token)}
	switch kind {
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: fleet.URL + "/sse", HTTPClient: h}
	case "compact":
		return &mcp.StreamableClientTransport{Endpoint: fleet.URL + "/mcp?profile=compact", HTTPClient: h}
	default:
		return &mcp.StreamableClientTransport{Endpoint: fleet.URL + "/mcp", HTTPClient: h}
	}
}

// bearer is an http.RoundTripper that adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func handle(ts *testscript.TestScript, _ bool, args []string) {
	_, rest, _ := strings.Cut(ts.ReadFile("stdout"), `"task_id": "`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		ts.Fatalf("handle: standard output has no task_id")
	}
	ts.Setenv(args[0], id)
}

func token(ts *testscript.TestScript, _ bool, _ []string) {
	fleet, err := client.ReadFleetFile(ts.MkAbs("codefleet/fleet.json"))
	ts.Check(err)
	ts.Setenv("TOKEN", fleet.Token)
}

// TestMCPTestHint checks that a task that has not ended is explained by why, and any other failure by doctor.
func TestMCPTestHint(t *testing.T) {
	for id, want := range map[string]string{"": "codefleet doctor", "abc": "codefleet why abc"} {
		if got := (mcpReport{Tools: []bridge.CheckResult{{}, {TaskID: id}}}).hint(); got != want {
			t.Errorf("hint with the task %q = %q, want %q", id, got, want)
		}
	}
}
