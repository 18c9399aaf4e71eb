// Command ingest serves a fleet's HTTP interface as a separate process. It keeps no state, so any number of these
// processes can run.
//
//	ingest [--config FILE] [--http ADDR] [--nats URL]      see docs/configuration.md for the settings
//	ingest --fleet FILE …                                  join a fleet that `codefleet up` runs
//
// If the FILE of --fleet does not exist yet, it waits for it. While it waits for the queue, it responds with 503. When
// it can serve, it prints its address. On SIGTERM or SIGINT it completes the active requests and exits; a second signal
// ends it at once.
// Exit codes: 0 after a signal, 1 if it could not serve, 2 for usage, configuration, or an address that cannot be used.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/process"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	p, err := process.Open(ctx, process.Program{
		Name: "ingest", Version: version, Args: args, Env: env, Stdout: stdout, Stderr: stderr,
		NoModel:  true,
		Settings: map[string]string{"http": "http.addr"},
	})
	if err == nil {
		err = errors.Join(serve(ctx, p, stdout), p.Close(context.WithoutCancel(ctx)))
	}
	return process.Exit(ctx, "ingest", err, stderr)
}

func serve(ctx context.Context, p *process.Process, stdout io.Writer) error {
	p.Config.Execution.WorkspaceDir = "" // only `codefleet up` has a live folder
	options, err := assembly.Ingest(p.Config, p.Telemetry, p.Fleet)
	if err != nil {
		return process.UsageError(err)
	}
	ln, err := process.Listen(ctx, p.Config.HTTP.Addr)
	if err != nil {
		return err
	}
	toolbox, err := tooling.Toolbox(p.Config, storage.CatalogueObjects(p.Config), p.Telemetry.Logger)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer toolbox.Close()
	options.Tools, options.Skills = toolbox, toolbox.Skills()
	server := assembly.Server(p.Config, p.Telemetry, options)
	defer assembly.FollowTokens(ctx, p.Config, p.Fleet, server.SetTokens)()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return server.Serve(ctx, ln) })
	both.Go(func() error {
		err := p.Connect(ctx)
		if err == nil {
			err = toolbox.Join(p.Queue)
		}
		if err != nil {
			return err
		}
		server.Join(p.Queue)
		scheme := "http"
		if options.Access.TLS != nil {
			scheme = "https"
		}
		fmt.Fprintf(stdout, "%s://%s\n", scheme, httpserve.Address(ln, p.Config.HTTP.Addr))
		return nil
	})
	return both.Wait()
}
