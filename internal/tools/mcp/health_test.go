package mcp_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// A server that cannot start is down. Its health has the reason and the time of the next attempt, and the
// delays between attempts grow. Once the server starts, it is up, without failures.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := hostileServer(t, "not-yet")
	const delay = 200 * time.Millisecond
	m, err := mcp.NewManager([]mcp.Server{server, {Name: "other", Command: "/nonexistent"}}, mcp.Options{
		Log: slog.New(slog.DiscardHandler), Backoff: mcp.Backoff{Min: delay, Max: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	idle := []mcp.Health{{Server: "hostile", State: "idle"}, {Server: "other", State: "idle"}}
	if diff := cmp.Diff(idle, m.Health()); diff != "" {
		t.Errorf("Health() before any call (-want +got):\n%s", diff)
	}
	for failures := 1; failures <= 2; failures++ {
		began := time.Now()
		if _, err := callHostile(t, m, "echo", `{}`); reason(t, err) != tools.Down {
			t.Fatalf("call %d = %v, want down", failures, err)
		}
		h := m.Health()[0]
		wait := delay << (failures - 1)
		if h.RetryAt.Before(began.Add(wait)) || h.RetryAt.After(time.Now().Add(wait)) {
			t.Errorf("after %d failures, the next attempt is %s after the last one began, want %s after it ended",
				failures, h.RetryAt.Sub(began), wait)
		}
		if !strings.Contains(h.LastError, "exit status 3") {
			t.Errorf("LastError = %q, want the exit status", h.LastError)
		}
		h.RetryAt, h.LastError = time.Time{}, ""
		if diff := cmp.Diff(mcp.Health{Server: "hostile", State: "down", Failures: failures}, h); diff != "" {
			t.Errorf("Health() after %d failures (-want +got):\n%s", failures, diff)
		}
	}
	if err := os.WriteFile(server.Env["HOSTILE_MARK"], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := callHostile(t, m, "echo", `{}`); err != nil { // waits for the next attempt
		t.Fatalf("call of the repaired server = %v, want nil", err)
	}
	up := m.Health()[0]
	if up.Version == "" {
		t.Error("Health has no version, want the server's")
	}
	up.Version = ""
	if diff := cmp.Diff(mcp.Health{Server: "hostile", State: "up", Connections: 1}, up); diff != "" {
		t.Errorf("Health() of the repaired server (-want +got):\n%s", diff)
	}
}
