package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/telemetry"
)

func (a *app) mcpCommand() *cobra.Command {
	var transport string
	flags := map[string]string{"http": "mcp.addr", "profile": "mcp.profile"}
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the fleet as an MCP server, for agents",
		Long: "Serve the fleet as an MCP server: on standard input and output, as clients start it, or\n" +
			"over HTTP. `codefleet up` serves it at /mcp as well. A long task outlives the client and\n" +
			"this process; its id can be used at every interface.",
		Example: `  claude mcp add codefleet -- codefleet mcp
  codefleet mcp config --client cursor
  codefleet mcp test`,
		Args: noArgs,
	}
	c.AddCommand(a.mcpConfigCommand(), a.mcpTestCommand())
	f := c.Flags()
	f.StringVar(&transport, "transport", "stdio", strings.Join(process.Transports(), ", "))
	f.String("http", "", "`ADDRESS` to listen on (default 127.0.0.1:8788)")
	f.String("profile", "", "tools that clients see: "+strings.Join(bridge.Profiles(), ", ")+" (default full)")
	_ = c.RegisterFlagCompletionFunc("transport",
		cobra.FixedCompletions(process.Transports(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("profile",
		cobra.FixedCompletions(bridge.Profiles(), cobra.ShellCompDirectiveNoFileComp))
	c.RunE = a.do(func(ctx context.Context, _ []string) error {
		if !slices.Contains(process.Transports(), transport) {
			return usage("--transport %s: want one of %s", transport, strings.Join(process.Transports(), ", "))
		}
		var list []config.Flag
		for name, key := range flags {
			if f.Changed(name) {
				list = append(list, config.Flag{Key: key, Value: f.Lookup(name).Value.String(), Name: "--" + name})
			}
		}
		return a.mcp(ctx, transport, list)
	})
	return c
}

// mcp runs a bridge. With stdio it prints nothing but the protocol.
func (a *app) mcp(ctx context.Context, transport string, flags []config.Flag) (err error) {
	c, err := a.load(flags...)
	if err != nil {
		return err
	}
	found, err := client.Locate(a.fleet)
	if err != nil {
		return noFleet(err)
	}
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "mcp", version, a.stderr))
	if err != nil {
		return usage("%v", err)
	}
	defer func() { err = errors.Join(err, flush(ctx, t)) }()
	err = process.Bridge{
		Transport: transport, Options: assembly.Bridge(c, t, version, found),
		Stdin: io.NopCloser(a.stdin), Stdout: nopWriteCloser{a.stdout},
	}.Run(ctx, c)
	if errors.Is(err, process.ErrUsage) {
		return usage("%v", err)
	}
	return markCall(err)
}
