// Package toolstest holds the tests of the tools' packages together: what ships, real servers from
// npm, Python programs that call them through generated modules and the broker, and what a call
// costs. There is no code here but tests.
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

// TestMain makes the test binary a tool server too, where it is started as one.
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
		t.Fatalf("error %v is no UpstreamError", err)
	}
	return ue.Reason
}

// waitUntil polls, because nobody tells when another process is ready.
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
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
