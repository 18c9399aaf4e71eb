package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/telemetry"
)

func (a *app) mcpCommand() *cobra.Command {
	var transport string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the fleet as an MCP server, for agents",
		Long: "Serve the fleet as an MCP server: on standard input and output for clients that start\n" +
			"this command, or over HTTP. `codefleet up` also serves MCP, at /mcp. A long task outlives\n" +
			"the client and this process; its id is valid at every interface. If the fleet has not\n" +
			"started yet, the command waits for it, and calls fail until then.",
		Example: `  claude mcp add codefleet -- codefleet mcp
  codefleet mcp config --client cursor
  codefleet mcp test`,
	}
	c.AddCommand(a.mcpConfigCommand(), a.mcpTestCommand())
	f := c.Flags()
	f.StringVar(&transport, "transport", "stdio", strings.Join(process.Transports(), ", "))
	settings := []settingFlag{
		{"http", "mcp.addr", "`ADDRESS` to listen on (default 127.0.0.1:8788)"},
		{"profile", "mcp.profile", "tools that clients see: " +
			strings.Join(bridge.Profiles(), ", ") + " (default full)"},
	}
	declareSettings(f, settings)
	completeFlag(c, "transport", process.Transports()...)
	completeFlag(c, "profile", bridge.Profiles()...)
	c.RunE = a.do(func(ctx context.Context, _ []string) error {
		if !slices.Contains(process.Transports(), transport) {
			return usage("--transport %s: want one of %s", transport, strings.Join(process.Transports(), ", "))
		}
		if transport == "stdio" && f.Changed("http") {
			return usage("--http has no effect with --transport stdio").
				try("codefleet mcp --transport http --http " + shellescape.Quote(f.Lookup("http").Value.String()))
		}
		return a.mcp(ctx, transport, changedSettings(f, settings))
	})
	return c
}

// mcp runs a bridge. Over stdio, standard output carries only the protocol.
func (a *app) mcp(ctx context.Context, transport string, flags []config.Flag) (err error) {
	c, err := a.load(flags...)
	if err != nil {
		return err
	}
	a.noteUnusedToken()
	options, err := bridge.Locate(a.fleet)
	if err != nil {
		return noFleet(err)
	}
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "mcp", version, a.stderr))
	if err != nil {
		return usage("%v", err)
	}
	defer func() { err = errors.Join(err, flush(ctx, t)) }()
	err = process.Bridge{
		Transport: transport, Name: "codefleet mcp", Options: assembly.Bridge(c, t, version, options),
		Stdin: io.NopCloser(a.stdin), Stdout: nopWriteCloser{a.stdout}, Stderr: a.stderr,
	}.Run(ctx, c)
	if errors.Is(err, process.ErrUsage) {
		return usage("%v", err).try("codefleet mcp --help")
	}
	return err
}
