// Command ingest is the HTTP interface of a fleet, as a process of its own in front of a queue. It
// keeps no state; run as many as needed.
//
//	ingest [--config FILE] [--http ADDR] [--nats URL]      settings: docs/configuration.md
//	ingest --fleet FILE …                                  a second door to a fleet that `codefleet up` runs
//
// It prints its address when it listens. SIGTERM and SIGINT end it when the requests under way are
// answered. Exit codes: 0 asked to end, 1 it could not serve, 2 usage or configuration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/codefleet/codefleet/internal/config"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	s, err := settings(args, env, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = serve(ctx, s, stdout, stderr)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "ingest:", err)
	if _, bad := errors.AsType[*config.InvalidError](err); bad || errors.Is(err, errUsage) {
		return 2
	}
	return 1
}
