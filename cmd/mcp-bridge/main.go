// Command mcp-bridge serves a fleet as an MCP server, in a separate process that uses the fleet's HTTP interface. It
// keeps no state, so any number of these processes can run.
//
//	mcp-bridge [--transport http|sse|stdio] [--http ADDR] [--profile full|compact] [--config FILE] [--fleet FILE]
//
// It finds the fleet by --fleet or CODEFLEET_FLEET, else by CODEFLEET_URL, else by the fleet.json in CODEFLEET_DATA or
// the default data directory (the setting data has no effect here). Over HTTP, each caller sends its own token; over
// stdio, the bridge uses the token in fleet.json or CODEFLEET_TOKEN. Without a fleet it waits for one, and calls fail
// meanwhile. When it listens, it prints its address. SIGTERM or SIGINT ends it; a second signal ends it at once. Exit
// codes: 0 after a signal, after -h, and over stdio after the client has closed the connection; 1 if it could not
// serve; 2 for usage, configuration, or an address that cannot be used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/process"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	os.Exit(process.Exit(ctx, "mcp-bridge", err, os.Stderr))
}

func run(
	ctx context.Context, args, env []string, stdin io.ReadCloser, stdout io.WriteCloser, stderr io.Writer,
) (err error) {
	served := process.Bridge{Transport: "http", Name: "mcp-bridge", Stdin: stdin, Stdout: stdout, Stderr: stderr}
	var fleet string
	var flags *flag.FlagSet
	p, err := process.Open(ctx, process.Program{
		Name: "mcp-bridge", Version: version, Args: args, Env: env, Stdout: stdout, Stderr: stderr,
		NoQueue:  true,
		NoModel:  true,
		Settings: map[string]string{"http": "mcp.addr", "profile": "mcp.profile"},
		Flags: func(f *flag.FlagSet) {
			flags = f
			f.StringVar(&fleet, "fleet", "", "fleet.json `FILE` of the fleet (CODEFLEET_FLEET)")
			f.StringVar(&served.Transport, "transport", served.Transport, "http, sse or stdio")
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
	if !slices.Contains(process.Transports(), served.Transport) {
		return process.UsageError(fmt.Errorf("--transport %s: want one of %s", served.Transport,
			strings.Join(process.Transports(), ", ")))
	}
	if served.Transport == "stdio" && given(flags, "http") {
		return process.UsageError(errors.New("--http has no effect with --transport stdio: want --transport http"))
	}
	options, err := bridge.Locate(fleet)
	if err != nil {
		return process.UsageError(err)
	}
	served.Options = assembly.Bridge(p.Config, p.Telemetry, version, options)
	return served.Run(ctx, p.Config)
}

// given reports whether a flag is on the command line.
func given(flags *flag.FlagSet, name string) (found bool) {
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
