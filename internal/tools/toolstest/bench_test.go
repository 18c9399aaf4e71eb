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

// The time that the manager and the broker add to a call of a read-only tool on stdio, without journal and
// audit, which the queue's benchmarks measure.
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
	snap := generate(b, m, filepath.Join(b.TempDir(), "servers"))
	tool, err := snap.Lookup("calculator", "add")
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
		e := execution(b, m, snap, &files)
		n := 0
		for b.Loop() {
			if n++; n == 1000 { // the budget of an execution
				e, n = execution(b, m, snap, &files), 0
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
