package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/jobs"
)

// farWorker is a worker on a host of its own, as cmd/worker is one, until SIGINT.
func farWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := assembly.Open(ctx, "worker", "test", os.Args[1:], os.Environ(), os.Stderr, nil)
	if err == nil {
		work, cut := context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(ctx, cut)
		join := func(ctx context.Context) (*jobs.Client, error) {
			err := p.Connect(ctx, "worker")
			return p.Queue, err
		}
		err = assembly.RunWorker(ctx, work, assembly.WorkerParts{
			Config: p.Config, Version: "test", Telemetry: p.Telemetry, Join: join, Ready: func() {},
		})
		err = errors.Join(err, p.Close())
	}
	os.Exit(assembly.Exit(ctx, "worker", err, os.Stderr))
}
