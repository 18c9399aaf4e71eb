// Command ingest is the HTTP interface of a fleet, until SIGINT or SIGTERM. Then it takes no new
// requests and lets those under way end; a second signal ends it at once. It keeps nothing: any
// number can serve side by side.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/wire"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is the system's again
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ingest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	p, err := wire.Open(ctx, "ingest", version, args, os.Environ(), os.Stderr)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, p), p.Close())
}

func serve(ctx context.Context, p *wire.Process) error {
	options, err := wire.Ingest(p.Config, p.Telemetry, p.Queue)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.Config.HTTP.Addr)
	if err != nil {
		return fmt.Errorf("http.addr: %w", err)
	}
	p.Telemetry.Logger.InfoContext(ctx, "ready", "http", l.Addr().String())
	return ingest.New(options).Serve(ctx, l)
}
