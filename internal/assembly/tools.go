package assembly

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/builtin"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/servers"
)

// ServersDir is the directory of tool modules of the settings. The default one is made, and the
// modules that come with the program are put there.
func ServersDir(c *config.Config) (string, error) {
	if c.Execution.ServersDir != "" {
		return c.Execution.ServersDir, nil
	}
	dir := filepath.Join(c.Data, "servers")
	if err := servers.Install(dir); err != nil {
		return "", fmt.Errorf("put the tools of the program into %s: %w", dir, err)
	}
	return dir, nil
}

// Catalogue is the catalogue of the settings.
func Catalogue(c *config.Config) (*tools.Catalogue, error) {
	dir, err := ServersDir(c)
	if err != nil {
		return nil, err
	}
	return tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}), nil
}

// LocalTools are the tools of the settings' servers directory, without a fleet.
func LocalTools(ctx context.Context, c *config.Config) (*tools.Snapshot, error) {
	catalogue, err := Catalogue(c)
	if err != nil {
		return nil, err
	}
	return catalogue.Read(ctx)
}

// Upstreams are the MCP servers that tools stand for: those within this process, and those of the
// settings, which go before one within of the same name. Nothing is started until it is called.
func Upstreams(c *config.Config, o mcp.Options) (*mcp.Manager, error) {
	var list []mcp.Server
	for _, s := range c.MCPServers {
		if s.Enabled != nil && !*s.Enabled {
			continue
		}
		if s.ConnectionType == "sse" {
			return nil, fmt.Errorf("mcp_servers: %s: the transport sse is not spoken any more: use the server's streamable HTTP address", s.Name)
		}
		list = append(list, mcp.Server{
			Name: s.Name, Command: s.Command, Args: s.Args, Env: plain(s.Env), User: s.User, URL: s.URL, Headers: plain(s.Headers),
			Scope: mcp.Scope(s.Scope), CallTimeout: s.Timeout,
		})
	}
	for _, name := range builtin.Names() {
		if slices.ContainsFunc(list, func(s mcp.Server) bool { return s.Name == name }) {
			continue
		}
		server, err := builtin.New(name, builtin.Options{})
		if err != nil {
			return nil, err
		}
		list = append(list, mcp.Server{Name: name, InProcess: server, Concurrency: builtinConcurrency})
	}
	return mcp.NewManager(list, o)
}

// plain are secrets for those who send them.
func plain(secrets map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for name, value := range secrets {
		out[name] = string(value)
	}
	return out
}

// upstreamNames are the names of the servers that Upstreams has.
func upstreamNames(c *config.Config) []string {
	names := builtin.Names()
	for _, s := range c.MCPServers {
		if s.Enabled == nil || *s.Enabled {
			names = append(names, s.Name)
		}
	}
	return names
}

// builtinConcurrency is how many calls of a server within this process are made at once.
const builtinConcurrency = 64

// toolPolicy is what happens to calls that may delete or overwrite.
func toolPolicy(c *config.Config) broker.Policy {
	p := broker.Policy{Destructive: broker.Decision(c.Tools.Destructive), Tools: map[string]broker.Decision{}}
	for id, d := range c.Tools.Policy {
		p.Tools[id] = broker.Decision(d)
	}
	return p
}

// toolBudget is what one run may ask of tools.
func toolBudget(c *config.Config) broker.Budget {
	t := c.Tools
	return broker.Budget{
		Calls: t.MaxCalls, Bytes: int64(t.MaxMB) << 20, Concurrent: t.MaxConcurrent, PerCall: t.CallTimeout, Total: t.TotalTime,
	}
}

// toolsOf are the tools that a tenant may use. A tenant that the settings do not name has none.
func toolsOf(c *config.Config) func(tenant string) []string {
	return func(tenant string) []string {
		t, ok := c.Tenants[tenant]
		switch {
		case !ok:
			return nil
		case len(t.Tools) == 0:
			return []string{"*"}
		}
		return t.Tools
	}
}
