package tooling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
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
		t.Error("Call(gone/x) = nil, want an error, because the server cannot start")
	}
	if _, err := servers.Call(t.Context(), tools.Request{
		Server: "calculator", Tool: "add", Args: []byte(`{"a":1,"b":2}`),
	}); err != nil {
		t.Errorf("Call(calculator/add) = %v, want nil", err)
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

// TestServersOfSettings checks that each setting of an MCP server reaches the server. A server without a scope has a
// connection for each tenant.
func TestServersOfSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = `
mcp_servers:
- {name: files, command: npx, args: [-y, files], env: {KEY: k}, user: bob, cwd: /srv, start_timeout: 5m, timeout: 2m,
   concurrency: 3, scope: session}
- {name: old, url: "https://old", connection_type: sse, headers: {X-Key: k}, scope: shared}
- {name: web, url: "https://web"}
- {name: "off", command: x, enabled: false}
`
	if err := os.WriteFile("config.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Env: []string{"HOME=/nonexistent"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []mcp.Server{
		{
			Name: "files", Command: "npx", Args: []string{"-y", "files"}, Env: map[string]string{"KEY": "k"},
			User: "bob", Dir: "/srv", Headers: map[string]string{}, Scope: mcp.PerSession,
			Limits: mcp.Limits{CallTimeout: 2 * time.Minute, ConnectTimeout: 5 * time.Minute, Concurrency: 3},
		},
		{
			Name: "old", URL: "https://old", SSE: true, Env: map[string]string{},
			Headers: map[string]string{"X-Key": "k"}, Scope: mcp.Shared,
		},
		{Name: "web", URL: "https://web", Env: map[string]string{}, Headers: map[string]string{}},
		{Name: "weather"},
	}
	if diff := cmp.Diff(want, servers(c, []mcp.Server{{Name: "weather"}, {Name: "web", URL: "x"}})); diff != "" {
		t.Errorf("servers of the settings (-want +got):\n%s", diff)
	}
}

// Servers, and secrets in files, that change while a worker runs are used without a restart. A new server's name is
// reserved as well.
func TestSettingsAreReadAgain(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "web", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "hello"}, func(
		_ context.Context, _ *sdk.CallToolRequest, _ struct{},
	) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{}, nil, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "right" {
			http.Error(w, "wrong key", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer web.Close()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "secret")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := "data: " + dir + "\nmcp_servers:\n- {name: web, url: " + web.URL + ", headers: {Authorization_file: " +
		secret + "}}\n"
	write(secret, "wrong\n")
	write(file, settings)
	c, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Upstreams(c, mcp.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	reserved := reservedNames(c, slog.New(slog.DiscardHandler))
	call := func(server string) error {
		_, err := m.Call(t.Context(), tools.Request{Server: server, Tool: "hello", Args: []byte("{}")})
		return err
	}
	if err := call("web"); err == nil || !strings.Contains(err.Error(), "wrong key") {
		t.Fatalf("Call(web/hello) with a wrong key = %v, want an error that contains wrong key", err)
	}
	write(secret, "right\n")
	write(file, settings+"- {name: later, url: "+web.URL+", headers: {Authorization: right}}\n")
	if err := errors.Join(call("later"), call("web")); err != nil {
		t.Errorf("Call after the change of the settings = %v, want nil", err)
	}
	if got := reserved(); !slices.Contains(got, "later") {
		t.Errorf("reserved names = %v, want them to include later", got)
	}
}

// A server that a worker's settings name is not overwritten by the built-in one with the same name, and a worker with a
// published catalogue adds no announced tools to its local one.
func TestLocalCatalogue(t *testing.T) {
	c := config.Default()
	c.Data, c.S3.Endpoint = t.TempDir(), "http://127.0.0.1:1"
	c.MCPServers = []config.MCPServer{{Name: "weather", Command: "true"}}
	dir, err := ServersDir(c)
	if err != nil {
		t.Fatal(err)
	}
	write := func(defs ...tools.Definition) {
		t.Helper()
		p, err := pygen.Generate(pygen.Source{Server: "weather", Tools: defs})
		if err == nil {
			_, err = pygen.Write(dir, p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := func() (names []string) {
		t.Helper()
		local, err := Catalogue(c)
		if err != nil {
			t.Fatal(err)
		}
		listing, err := local.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range listing.Tools {
			if tool.Server == "weather" {
				names = append(names, tool.Name)
			}
		}
		return names
	}
	storm, rain := tools.Definition{Name: "storm"}, tools.Definition{Name: "rain"}
	write(storm)
	if got := names(); !slices.Equal(got, []string{"storm"}) {
		t.Errorf("tools of the configured server = %v, want only storm", got)
	}
	bucket := mem.New()
	var log strings.Builder
	announced, err := addAnnounced(t.Context(), c, bucket, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	announced("weather", []tools.Definition{rain})
	if got := names(); !slices.Equal(got, []string{"rain", "storm"}) {
		t.Errorf("tools after an announcement = %v, want rain and storm", got)
	}
	local, err := Catalogue(c)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := local.Pack(t.Context())
	if err == nil {
		err = tools.Publish(t.Context(), bucket, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	announced("weather", []tools.Definition{{Name: "snow"}})
	if got := names(); !slices.Equal(got, []string{"rain", "storm"}) {
		t.Errorf("tools after an announcement with a published catalogue = %v, want no more", got)
	}
	broken := mem.New()
	broken.SetFault(func(mem.Call) mem.Fault { return mem.Broken })
	if announced, err = addAnnounced(t.Context(), c, broken, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	announced("weather", []tools.Definition{{Name: "hail"}})
	if got := names(); !slices.Equal(got, []string{"hail", "rain", "storm"}) ||
		!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "injected: broken") {
		t.Errorf("tools after an announcement with a failing bucket = %v, log %s; want hail, too, and a warning",
			got, log.String())
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

// A tenant that the settings do not name, or whose settings list no tools, may call all tools.
func TestAllowList(t *testing.T) {
	c := config.Default()
	c.Tenants = map[string]config.Tenant{"some": {Tools: []string{"calculator/*"}}, "all": {}}
	for tenant, want := range map[string]string{
		"some": "[calculator/*] true", "all": "[*] true", "created": "[*] false",
	} {
		list, inSettings := allowOf(c)(tenant)
		if got := fmt.Sprint(list, inSettings); got != want {
			t.Errorf("allow-list of %s = %s, want %s", tenant, got, want)
		}
	}
}

// weather.provider decides which source the built-in tools of weather have.
func TestWeatherProvider(t *testing.T) {
	for provider, want := range map[string]string{
		config.WeatherSample: `"source":"sample"`, config.WeatherOpenMeteo: `"x" is not the name of a place`,
	} {
		c := config.Default()
		c.Weather.Provider = provider
		m, err := Upstreams(c, mcp.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		r, err := m.Call(t.Context(), tools.Request{
			Server: "weather", Tool: "get_weather", Args: []byte(`{"location":"x"}`),
		})
		if got := fmt.Sprintf("%s %v %v", r.Structured, r.Content, err); !strings.Contains(got, want) {
			t.Errorf("get_weather(x) of %s = %s, want %s", provider, got, want)
		}
	}
}

// Built-in tools connect to public addresses only, even if a host name resolves to another one, and follow no
// redirects.
func TestPublicClient(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("/elsewhere", http.StatusFound))
	defer server.Close()
	c := publicClient()
	for _, address := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
		r, err := c.Get(address)
		if err == nil {
			_ = r.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "has an address that is not on the public internet") &&
			!strings.Contains(err.Error(), "has no address") {
			t.Errorf("Get(%s) = %v, want an error about the address", address, err)
		}
	}
	c.Transport = http.DefaultTransport
	r, err := c.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusFound {
		t.Errorf("Get(%s) = %d, want the redirect", server.URL, r.StatusCode)
	}
}
