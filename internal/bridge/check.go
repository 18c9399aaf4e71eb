package bridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// CheckResult is the outcome of one call by Check.
type CheckResult struct {
	Tool    string          `json:"tool"`
	OK      bool            `json:"ok"`
	MS      float64         `json:"ms"`
	Message string          `json:"message"`          // a summary of the result, or what is wrong
	Args    json.RawMessage `json:"args,omitempty"`   // the call's arguments
	Result  json.RawMessage `json:"result,omitempty"` // the structured content, or the text of an error

	TaskID string `json:"task_id,omitempty"` // the call's task, if it has not ended
}

// probe is one call of a tool, and the test of its result. A later probe may use what an earlier one found.
type probe struct {
	tool string
	args func(*findings) map[string]any
	test func(*findings, map[string]any) (summary string, ok bool)
}

// findings are what the probes have found so far.
type findings struct {
	servers []any
	mark    string // the value that save_state writes
	saved   bool
}

// checkFile is the state document that the probes write.
const checkFile = "state/mcp-test.json"

// checkWorkspace is the workspace that the probes use, so that they do not change the user's files.
const checkWorkspace = "mcp-test"

func joined(list []any) string { return strings.TrimSpace(fmt.Sprintln(list...)) }

// asJSON returns a value of a result as a user reads it: null if the result lacks it.
func asJSON(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, _ := json.Marshal(value) // it was decoded from JSON
	return string(data)
}

func noArgs(*findings) map[string]any { return map[string]any{} }

func probes() []probe {
	return []probe{
		{
			"execute_task",
			func(*findings) map[string]any { return map[string]any{"code": "6*7", "workspace": checkWorkspace} },
			func(_ *findings, a map[string]any) (string, bool) {
				return "6*7 = " + asJSON(a["result"]), a["result"] == 42.0
			},
		},
		{"list_available_tools", noArgs, func(_ *findings, a map[string]any) (string, bool) {
			return fmt.Sprintf("servers: %d", len(a)), len(a) > 0
		}},
		{
			"save_state",
			func(f *findings) map[string]any {
				return map[string]any{
					"state_file": checkFile, "workspace": checkWorkspace, "state_data": map[string]any{"mark": f.mark},
				}
			},
			func(f *findings, a map[string]any) (string, bool) {
				f.saved = a["success"] == true
				return asJSON(a["file"]), f.saved
			},
		},
		{
			"get_state",
			func(*findings) map[string]any {
				return map[string]any{"state_file": checkFile, "workspace": checkWorkspace}
			},
			func(f *findings, a map[string]any) (string, bool) {
				data, _ := a["data"].(map[string]any)
				if !f.saved { // save_state was not called or failed
					return "exists: " + asJSON(a["exists"]), data != nil
				}
				return "the mark " + asJSON(data["mark"]), data["mark"] == f.mark
			},
		},
		{"list_servers", noArgs, func(f *findings, a map[string]any) (string, bool) {
			f.servers, _ = a["result"].([]any)
			return joined(f.servers), len(f.servers) > 0
		}},
		{
			"get_server_tools",
			func(f *findings) map[string]any {
				if len(f.servers) == 0 {
					return map[string]any{"server_name": "calculator"}
				}
				return map[string]any{"server_name": f.servers[0]}
			},
			func(_ *findings, a map[string]any) (string, bool) {
				tools, _ := a["result"].([]any)
				return joined(tools), len(tools) > 0
			},
		},
		{
			"search_tools",
			func(*findings) map[string]any { return map[string]any{"query": "calculate an expression"} },
			func(_ *findings, a map[string]any) (string, bool) {
				delete(a, searchKey)
				return fmt.Sprintf("servers with matching tools: %d", len(a)), len(a) > 0
			},
		},
	}
}

// Check starts a bridge and calls its tools as an MCP client does. tools names the tools to call; an empty list selects
// all of CheckedTools. Check passes each outcome to report. It returns an error if it cannot connect to the bridge.
func Check(ctx context.Context, o Options, tools []string, report func(CheckResult)) error {
	b := New(o)
	defer b.Close()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- b.ServeStdio(ctx, in, out); _ = out.Close() }() // ends with the pipes
	defer func() { _, _ = toServer.Close(), fromServer.Close() }()        // closing a pipe does not fail
	c := mcp.NewClient(&mcp.Implementation{Name: "codefleet mcp test", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		select {
		case cause := <-served:
			return cause
		default:
			return err
		}
	}
	defer func() { _ = session.Close() }() // all results have arrived
	f := findings{mark: rand.Text()}
	for _, p := range probes() {
		if len(tools) == 0 || slices.Contains(tools, p.tool) {
			result := p.run(ctx, session, &f)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			report(result)
		}
	}
	return nil
}

// CheckedTools returns the names of the tools that Check calls.
func CheckedTools() []string {
	var names []string
	for _, p := range probes() {
		names = append(names, p.tool)
	}
	return names
}

func (p probe) run(ctx context.Context, session *mcp.ClientSession, f *findings) CheckResult {
	args, begun := p.args(f), time.Now()
	c := CheckResult{Tool: p.tool}
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: p.tool, Arguments: args})
	c.MS = float64(time.Since(begun).Microseconds()) / 1000
	c.Args, _ = json.Marshal(args) // cannot fail: only strings and maps
	if err != nil {
		c.Message = err.Error()
		return c
	}
	content := contentOf(r)
	c.Result, _ = json.Marshal(content) // cannot fail: it was decoded from JSON
	if r.IsError {
		c.Message = fmt.Sprint(content["error"])
		return c
	}
	if message, waits := unfinished(content); waits {
		c.Message, c.TaskID = message, fmt.Sprint(content["task_id"])
		return c
	}
	c.Message, c.OK = p.test(f, content)
	return c
}

// unfinished says why a result has no value yet, if its task has not ended.
func unfinished(content map[string]any) (message string, waits bool) {
	switch status := content["status"]; status {
	case string(client.Queued):
		return "the task is still queued: no worker has taken it", true
	case string(client.Running), string(client.RetryWait):
		return fmt.Sprintf("the task has not ended: its status is %s", status), true
	}
	return "", false
}

// contentOf returns the structured content of a result, or else the object in its text.
func contentOf(r *mcp.CallToolResult) map[string]any {
	if content, ok := r.StructuredContent.(map[string]any); ok {
		return content
	}
	var content map[string]any
	if len(r.Content) == 0 {
		return nil
	}
	if text, ok := r.Content[0].(*mcp.TextContent); ok {
		_ = json.Unmarshal([]byte(text.Text), &content) // any other text leaves content empty
	}
	return content
}
