package assembly

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/broker"
	"github.com/codefleet/codefleet/internal/tools/builtin"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// Toolbox returns the tools of the settings. A directory that the settings name (or a fleet in one
// process) is the catalogue; otherwise the published catalogue is, and until one is published the tools
// that come with the program. bucket is where it is published.
func Toolbox(c *config.Config, bucket objects.Objects, log *slog.Logger) (*toolbox.Toolbox, error) {
	local, err := toolbox.OpenCatalogue(c.Execution.ServersDir, c.Data)
	if err != nil {
		return nil, err
	}
	embeddings, err := Embeddings(c, log)
	if err != nil {
		return nil, err
	}
	o := toolbox.Options{
		Source: local, Reserved: upstreamNames(c), Allow: toolsOf(c), Embeddings: embeddings, Log: log,
	}
	if c.Execution.ServersDir == "" && c.S3.Endpoint != "" {
		o.Source = toolbox.PublishedOr(tools.OpenPublished(bucket), local)
	}
	return toolbox.New(o), nil
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
