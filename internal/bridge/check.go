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
)

// Checked is what came of trying one tool.
type Checked struct {
	Tool    string          `json:"tool"`
	OK      bool            `json:"ok"`
	MS      float64         `json:"ms"`
	Message string          `json:"message"`          // what it answered, or what is wrong
	Args    json.RawMessage `json:"args,omitempty"`   // of the call
	Answer  json.RawMessage `json:"answer,omitempty"` // its structure
}

// probe is one call of a tool and what its answer has to be. A later one may use what an earlier one
// saw.
type probe struct {
	tool  string
	args  func(*sight) map[string]any
	judge func(*sight, map[string]any) (said string, ok bool)
}

// sight is what the probes have seen so far.
type sight struct {
	servers []any
	mark    string // what save_state writes
	saved   bool
}

// checkFile is the state file that the probes use.
const checkFile = "state/mcp-test.json"

func words(list []any) string { return strings.TrimSpace(fmt.Sprintln(list...)) }

func none(*sight) map[string]any { return map[string]any{} }

func probes() []probe {
	return []probe{
		{
			"execute_task",
			func(*sight) map[string]any { return map[string]any{"code": "6*7"} },
			func(_ *sight, a map[string]any) (string, bool) {
				return fmt.Sprintf("6*7 = %v", a["result"]), a["result"] == 42.0
			},
		},
		{"list_available_tools", none, func(_ *sight, a map[string]any) (string, bool) {
			return fmt.Sprintf("servers: %d", len(a)), len(a) > 0
		}},
		{
			"save_state",
			func(s *sight) map[string]any {
				return map[string]any{"state_file": checkFile, "state_data": map[string]any{"mark": s.mark}}
			},
			func(s *sight, a map[string]any) (string, bool) {
				s.saved = a["success"] == true
				return fmt.Sprint(a["file"]), s.saved
			},
		},
		{
			"get_state",
			func(*sight) map[string]any { return map[string]any{"state_file": checkFile} },
			func(s *sight, a map[string]any) (string, bool) {
				data, _ := a["data"].(map[string]any)
				if !s.saved { // get_state alone
					return fmt.Sprintf("exists: %v", a["exists"]), data != nil
				}
				return fmt.Sprintf("the mark %v", data["mark"]), data["mark"] == s.mark
			},
		},
		{"list_servers", none, func(s *sight, a map[string]any) (string, bool) {
			s.servers, _ = a["result"].([]any)
			return words(s.servers), len(s.servers) > 0
		}},
		{
			"get_server_tools",
			func(s *sight) map[string]any {
				if len(s.servers) == 0 {
					return map[string]any{"server_name": "calculator"}
				}
				return map[string]any{"server_name": s.servers[0]}
			},
			func(_ *sight, a map[string]any) (string, bool) {
				tools, _ := a["result"].([]any)
				return words(tools), len(tools) > 0
			},
		},
		{
			"search_tools",
			func(*sight) map[string]any { return map[string]any{"query": "calculate an expression"} },
			func(_ *sight, a map[string]any) (string, bool) {
				delete(a, searchKey)
				return fmt.Sprintf("servers with tools for it: %d", len(a)), len(a) > 0
			},
		},
	}
}

// Check tries the tools of a bridge with the given options as an MCP client does, those named or all,
// and tells of each as it is done. The error says that the bridge could not be reached.
func Check(ctx context.Context, o Options, tools []string, tell func(Checked)) error {
	b := New(o)
	defer b.Close()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.ServeStdio(ctx, in, out); _ = out.Close() }()
	defer func() { _, _ = toServer.Close(), fromServer.Close() }() // pipes
	c := mcp.NewClient(&mcp.Implementation{Name: "codefleet mcp test", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		select {
		case why := <-ended:
			return why
		default:
			return err
		}
	}
	defer func() { _ = session.Close() }() // it has said all
	s := sight{mark: rand.Text()}
	for _, p := range probes() {
		if len(tools) == 0 || slices.Contains(tools, p.tool) {
			tell(p.try(ctx, session, &s))
		}
	}
	return nil
}

// CheckedTools are the names of the tools that Check tries.
func CheckedTools() []string {
	var names []string
	for _, p := range probes() {
		names = append(names, p.tool)
	}
	return names
}

func (p probe) try(ctx context.Context, session *mcp.ClientSession, s *sight) Checked {
	args, begun := p.args(s), time.Now()
	c := Checked{Tool: p.tool}
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: p.tool, Arguments: args})
	c.MS = float64(time.Since(begun).Microseconds()) / 1000
	c.Args, _ = json.Marshal(args) // a map of plain values
	if err != nil {
		c.Message = err.Error()
		return c
	}
	answer, _ := r.StructuredContent.(map[string]any)
	c.Answer, _ = json.Marshal(answer) // it came as JSON
	if r.IsError {
		c.Message = fmt.Sprint(answer["error"])
		return c
	}
	c.Message, c.OK = p.judge(s, answer)
	return c
}
