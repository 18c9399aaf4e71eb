package tooling

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// The metrics distinguish servers that fail to start, that are connected, and that are not needed yet.
func TestUpstreamsInMetrics(t *testing.T) {
	c := config.Default()
	c.MCPServers = []config.MCPServer{{Name: "gone", Command: "/nonexistent/server"}}
	servers, err := Upstreams(c, mcp.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	tel, err := telemetry.Setup(t.Context(), telemetry.Options{Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	unregister, err := servers.Observe(tel.MeterProvider.Meter("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer unregister()
	if _, err := servers.Call(t.Context(), tools.Request{Server: "gone", Tool: "x"}); err == nil {
		t.Error("call of a server that cannot start: no error")
	}
	if _, err := servers.Call(t.Context(), tools.Request{
		Server: "calculator", Tool: "add",
		Args: []byte(`{"a":1,"b":2}`),
	}); err != nil {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	tel.MetricsHandler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`codefleet_tools_upstream{server="gone",state="down"} 1`, `codefleet_tools_upstream_failures{server="gone"} 1`,
		`codefleet_tools_upstream{server="calculator",state="up"} 1`,
		`codefleet_tools_upstream_failures{server="calculator"} 0`,
		`codefleet_tools_upstream{server="weather",state="idle"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("/metrics lacks %q:\n%s", want, w.Body.String())
		}
	}
}

// The settings accept the decisions of package broker, and no others.
func TestPolicyValues(t *testing.T) {
	c := config.Default()
	c.Tools.Destructive, c.Tools.Policy = "nonsense", map[string]string{"git/*": "nonsense"}
	var decisions []string
	for _, d := range broker.Decisions {
		decisions = append(decisions, string(d))
	}
	want := `"nonsense" is not one of ` + strings.Join(decisions, ", ")
	if err := c.Validate(); err == nil || strings.Count(err.Error()+"\n", want+"\n") != 2 {
		t.Errorf("Validate() = %v, want twice %s", err, want)
	}
}
