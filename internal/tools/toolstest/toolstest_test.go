// Package toolstest tests the tools packages together: the shipped tools, real servers from npm, Python
// programs that call them through generated modules and the broker, and the cost of a call. It contains
// only tests.
package toolstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/logtest"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/builtin"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// TestMain runs a tool server instead of the tests if TOOL_SERVER names one.
func TestMain(m *testing.M) {
	if name := os.Getenv("TOOL_SERVER"); name != "" {
		if err := builtin.Serve(context.Background(), name, builtin.Options{}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

func manager(t *testing.T, servers ...mcp.Server) (*mcp.Manager, *logtest.Log) {
	t.Helper()
	out := &logtest.Log{}
	m, err := mcp.NewManager(servers,
		mcp.Options{
			Log:     slog.New(slog.NewTextHandler(out, nil)),
			Backoff: mcp.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, out
}

func reason(t *testing.T, err error) tools.Reason {
	t.Helper()
	ue, ok := errors.AsType[*tools.UpstreamError](err)
	if !ok {
		t.Fatalf("error is %v, want an UpstreamError", err)
	}
	return ue.Reason
}

// waitUntil polls, because nothing announces the state of another process.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out; want: %s", what)
		}
	}
}
