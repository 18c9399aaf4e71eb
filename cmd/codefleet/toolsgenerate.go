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
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

func (a *app) toolsGenerateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "generate [SERVER...]",
		Short: "Ask the MCP servers of the settings for their tools, and write a Python module for each",
		Long: "Ask the MCP servers of the settings (mcp_servers) for their tools, and write a Python module for each into\n" +
			"the servers directory. New and changed definitions are refused until `codefleet tools approve`.",
		RunE: a.do(func(ctx context.Context, args []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			dir, err := toolbox.ServersDir(c.Execution.ServersDir, c.Data)
			if err != nil {
				return err
			}
			var said lastWords
			upstreams, err := tooling.Upstreams(c, mcp.Options{Log: slog.New(slog.DiscardHandler), OnOutput: said.hear})
			if err != nil {
				return err
			}
			defer upstreams.Close()
			names, err := serversOf(c, args)
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range names {
				if err := a.generate(ctx, upstreams, dir, name); err != nil {
					errs = append(errs, fmt.Errorf("generate the tools of %s: %w%s", name, err, said.of(name)))
				}
			}
			if err := errors.Join(errs...); err != nil {
				return &failure{code: errcode.ExitFailed, message: err.Error(), hint: "codefleet config show has the settings (mcp_servers); a command can be started by hand, too"}
			}
			return nil
		}),
	}
}

// lastWords keeps what servers wrote last to standard error: why they do not start.
type lastWords struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (w *lastWords) hear(server, line string) {
	const kept = 5
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lines == nil {
		w.lines = map[string][]string{}
	}
	all := append(w.lines[server], line)
	w.lines[server] = all[max(0, len(all)-kept):]
}

func (w *lastWords) of(server string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, line := range w.lines[server] {
		b.WriteString("\n  it said: " + clipTo(200, line))
	}
	return b.String()
}

// serversOf are the MCP servers of the settings, or those of them that are named.
func serversOf(c *config.Config, named []string) ([]string, error) {
	var all []string
	for _, s := range c.MCPServers {
		if s.Enabled == nil || *s.Enabled {
			all = append(all, s.Name)
		}
	}
	for _, n := range named {
		if !slices.Contains(all, n) {
			return nil, usage("%v", &tools.UnknownError{What: "server", Name: n, Nearest: tools.Nearest(n, all, 3)})
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	if len(all) == 0 {
		return nil, &failure{code: errcode.ExitUsage, message: "the settings name no MCP servers", hint: "add them to mcp_servers in config.yaml"}
	}
	return all, nil
}

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
		fmt.Fprintf(a.stderr, "left out: %s/%s: %s\n", server, text.Printable(r.Tool), r.Reason)
	}
	if previous.Server != "" && previous.WithoutVersion() != about.WithoutVersion() {
		fmt.Fprintf(a.stderr, "%s says something else of itself than before, by which its tools are found: codefleet tools show %[1]s\n", server)
	}
	fmt.Fprintf(a.stderr, "%s: %d tools, %d files changed in %s; codefleet tools approve shows what is new\n",
		server, len(p.Index.Tools), len(changed), filepath.Join(dir, p.Dir))
	return nil
}
