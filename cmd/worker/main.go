// Command worker takes tasks from the queue and runs them in sandboxes, until SIGINT or SIGTERM. Then
// it takes no more and lets running tasks end (worker.drain); a second signal ends it at once. It
// keeps nothing: its tasks run elsewhere when it is killed.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/wire"
)

// version is set at build time.
var version = "dev"

func main() {
	take, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(take, stop) // the second signal is the system's again
	os.Exit(run(take, os.Args[1:], os.Environ(), os.Stderr))
}

func run(take context.Context, args, env []string, stderr io.Writer) int {
	p, err := wire.Open(take, "worker", version, args, env, stderr, nil)
	if err == nil {
		work, cut := context.WithCancel(context.WithoutCancel(take))
		defer cut()
		context.AfterFunc(take, func() { time.AfterFunc(p.Config.Worker.Drain, cut) })
		err = errors.Join(serve(take, work, p), p.Close())
	}
	return wire.Exit(take, "worker", err, stderr)
}

func serve(take, work context.Context, p *wire.Process) error {
	log := p.Telemetry.Logger
	if err := p.ServeHealth(work); err != nil {
		return err
	}
	join := func(ctx context.Context) (*jobs.Client, error) {
		store, err := wire.Store(p.Config, "", slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		found, err := store.Probe(ctx)
		if err != nil {
			return nil, err
		}
		log.InfoContext(ctx, "object store answers", "verdict", found.Verdict, "ms", found.Latency.Milliseconds())
		err = p.Connect(ctx, "worker")
		return p.Queue, err
	}
	ready := func() { log.InfoContext(take, "ready", "worker", p.Config.Worker.Name, "slots", p.Config.Slots()) }
	p.Config.Execution.WorkspaceDir = "" // `codefleet up` alone keeps a folder of a person's
	return wire.RunWorker(take, work, p.Config, version, join, p.Telemetry, ready)
}
