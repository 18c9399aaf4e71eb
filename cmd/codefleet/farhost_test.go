package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/wire"
)

// farWorker is a worker on a host of its own, as cmd/worker is one, until SIGINT.
func farWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := wire.Open(ctx, "worker", "test", os.Args[1:], os.Environ(), os.Stderr, nil)
	if err == nil {
		work, cut := context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(ctx, cut)
		join := func(ctx context.Context) (*jobs.Client, error) {
			err := p.Connect(ctx, "worker")
			return p.Queue, err
		}
		err = errors.Join(wire.RunWorker(ctx, work, p.Config, "test", join, p.Telemetry, func() {}), p.Close())
	}
	os.Exit(wire.Exit(ctx, "worker", err, os.Stderr))
}
