// Command mcp-bridge is a fleet as an MCP server, as a process of its own in front of the fleet's
// HTTP interface. It keeps no state; run as many as needed.
//
//	mcp-bridge [--transport http|sse|stdio] [--http ADDR] [--profile full|compact] [--config FILE] [--fleet FILE]
//
// The fleet is found as every program finds it: --fleet or CODEFLEET_FLEET, else CODEFLEET_URL, else
// the default data directory. Over HTTP each caller brings a token of the fleet's; over stdio the
// bridge uses the one that it found. It prints its address when it listens. SIGTERM and SIGINT end
// it; a second signal ends it at once. Exit codes: 0 asked to end, 1 it could not serve, 2 usage or
// configuration.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/bridge/fixtures"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is the system's again
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	os.Exit(assembly.Exit(ctx, "mcp-bridge", err, os.Stderr))
}

func run(ctx context.Context, args, env []string, stdin io.ReadCloser, stdout io.WriteCloser, stderr io.Writer) error {
	flags := flag.NewFlagSet("mcp-bridge", flag.ContinueOnError)
	flags.SetOutput(stderr)
	source := config.Source{Env: env}
	flags.StringVar(&source.File, "config", "", "configuration `FILE` (CODEFLEET_CONFIG)")
	fleet := flags.String("fleet", "", "`FILE` fleet.json of the fleet (CODEFLEET_FLEET)")
	transport := flags.String("transport", "http", "http, sse or stdio")
	conformance := flags.Bool("conformance-fixtures", false, "add what the protocol's conformance suite looks for")
	for name, key := range map[string]string{"http": "mcp.addr", "profile": "mcp.profile"} {
		flags.Func(name, key+" of the configuration", func(v string) error {
			source.Flags = append(source.Flags, config.Flag{Key: key, Value: v, Name: "--" + name})
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", assembly.ErrUsage, err)
	}
	if flags.NArg() > 0 || !slices.Contains(assembly.Transports(), *transport) {
		return fmt.Errorf("%w: --transport is one of %v, and there are no arguments", assembly.ErrUsage, assembly.Transports())
	}
	c, err := config.Load(source)
	if err != nil {
		return fmt.Errorf("%w: %w", assembly.ErrUsage, err)
	}
	found, err := client.Locate(*fleet)
	if err != nil {
		return fmt.Errorf("%w: %w", assembly.ErrUsage, err)
	}
	t, err := telemetry.Setup(ctx, assembly.Telemetry(c, "mcp-bridge", version, stderr))
	if err != nil {
		return err
	}
	r := assembly.BridgeRun{Transport: *transport, Options: assembly.Bridge(c, t, version, found), Stdin: stdin, Stdout: stdout}
	if *conformance {
		r.Options.Extend = fixtures.Extension()
	}
	defer func() { _ = t.Shutdown(context.WithoutCancel(ctx)) }() // the last spans
	return assembly.RunBridge(ctx, c, r)
}
