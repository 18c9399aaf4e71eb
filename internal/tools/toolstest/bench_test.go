package toolstest

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// BenchmarkCall measures what the manager and the broker add to the time of a call of a read-only tool on
// standard input and output. The queue's benchmarks measure the journal and the audit.
func BenchmarkCall(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	args := json.RawMessage(`{"a":2,"b":3}`)
	b.Run("bare", func(b *testing.B) {
		cmd := exec.CommandContext(b.Context(), self)
		cmd.Env = []string{"TOOL_SERVER=calculator"}
		cs, err := sdk.NewClient(&sdk.Implementation{Name: "bench"},
			nil).Connect(b.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer cs.Close()
		for b.Loop() {
			if r, err := cs.CallTool(b.Context(), &sdk.CallToolParams{Name: "add", Arguments: args}); err != nil ||
				r.IsError {
				b.Fatal(r, err)
			}
		}
	})
	m, err := mcp.NewManager([]mcp.Server{
		{Name: "calculator", Command: self, Env: map[string]string{"TOOL_SERVER": "calculator"}},
	}, mcp.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	listing := generate(b, m, filepath.Join(b.TempDir(), "servers"))
	tool, err := listing.Lookup("calculator", "add")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("manager", func(b *testing.B) {
		for b.Loop() {
			if r, err := m.Call(b.Context(),
				tools.Request{
					Server: "calculator", Tool: "add", Args: args, Hash: tool.Hash,
				}); err != nil || r.IsError {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("broker", func(b *testing.B) {
		var files sync.Map
		e := execution(b, m, listing, &files)
		n := 0
		for b.Loop() {
			if n++; n == 1000 { // the budget of an execution
				e, n = execution(b, m, listing, &files), 0
			}
			if r, err := e.Call(b.Context(),
				broker.Call{
					Server: "calculator", Tool: "add", Args: args, Hash: tool.Hash,
				}); err != nil || string(r.Value) != "5" {
				b.Fatal(r, err)
			}
		}
	})
}
