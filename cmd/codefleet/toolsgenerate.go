package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

func (a *app) toolsGenerateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "generate [SERVER...]",
		Args:  cobra.ArbitraryArgs,
		Short: "Write Python modules for the tools of the settings' MCP servers",
		Long: "Write Python modules for the tools of the settings' MCP servers (mcp_servers) into the\n" +
			"servers directory. The fleet refuses calls of new and changed definitions until you\n" +
			"approve them with `codefleet tools approve`.",
		RunE: a.do(func(ctx context.Context, args []string) error {
			c, err := a.loadTools()
			if err != nil {
				return err
			}
			dir, err := tooling.ServersDir(c)
			if err != nil {
				return err
			}
			stderr := lastLines{lines: map[string][]string{}}
			upstreams, err := tooling.Upstreams(c,
				mcp.Options{Log: slog.New(slog.DiscardHandler), OnOutput: stderr.record})
			if err != nil {
				return usage("%v", err)
			}
			defer upstreams.Close()
			names, err := serversOf(c, args)
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				err := a.generate(ctx, upstreams, dir, name)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("generate the tools of %s: %w%s", name, err, stderr.format(name)))
				}
			}
			if err := errors.Join(errs...); err != nil {
				return &failure{
					code: errcode.ExitFailed, message: err.Error(),
					hint: "check mcp_servers with codefleet config show, and try the server's command in a shell",
				}
			}
			return nil
		}),
	}
}

// lastLines keeps the last lines of each server's standard error, which often explain why it fails.
type lastLines struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (w *lastLines) record(server, line string) {
	const limit = 5
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.lines[server], line)
	w.lines[server] = all[max(0, len(all)-limit):]
}

func (w *lastLines) format(server string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, line := range w.lines[server] {
		b.WriteString("\n  standard error: " + text.Truncate(text.OneLine(line), 200))
	}
	return b.String()
}

// serversOf returns the named MCP servers, or all enabled ones if none is named.
func serversOf(c *config.Config, named []string) ([]string, error) {
	var all []string
	for _, s := range c.MCPServers {
		if s.Enabled == nil || *s.Enabled {
			all = append(all, s.Name)
		}
	}
	for _, n := range named {
		if !slices.Contains(all, n) {
			return nil, usage("%v", &tools.UnknownError{What: "server", Name: n, Nearest: tools.Nearest(n, all, 3)}).
				try("codefleet config show  (mcp_servers has the servers), or add it to mcp_servers")
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	if len(all) == 0 {
		return nil, usage("the settings list no enabled MCP server").try("add one to mcp_servers in config.yaml")
	}
	return all, nil
}

// generate writes the Python modules for the tools of a server, and reports what has changed.
func (a *app) generate(ctx context.Context, upstreams *mcp.Manager, dir, server string) error {
	defs, about, err := upstreams.Definitions(ctx, server, config.DefaultTenant, "")
	if err != nil {
		return err
	}
	previous, err := pygen.Previous(dir, server)
	if err != nil {
		return err
	}
	p, err := pygen.Generate(pygen.Source{Server: server, About: about, Tools: defs, Previous: previous})
	if err != nil {
		return err
	}
	changed, err := pygen.Write(dir, p)
	if err != nil {
		return err
	}
	for _, r := range p.Rejected {
		fmt.Fprintf(a.stderr, "skipped: %s/%s: %s\n", server, r.Tool, r.Reason)
	}
	if previous.Server != "" && previous.WithoutVersion() != about.WithoutVersion() {
		fmt.Fprintf(a.stderr, "the description of %s has changed; tool searches use it. Check it with "+
			"%s\n", server, a.withFlags("codefleet tools show "+server))
	}
	fmt.Fprintf(a.stderr, "%s: %s, %s changed in %s; review them with %s\n",
		server, text.Count(len(p.Definitions.Tools), "tool"), text.Count(len(changed), "file"),
		filepath.Join(dir, p.Dir), a.withFlags("codefleet tools approve"))
	return nil
}
