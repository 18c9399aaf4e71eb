package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/process"
)

// farWorker is a program that runs a worker until SIGINT, as cmd/worker would on another host.
func farWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := process.Open(ctx, process.Program{
		Name: "worker", Version: "test", Args: os.Args[1:], Env: os.Environ(), Stderr: os.Stderr,
	})
	if err == nil {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(ctx, cancel)
		accept, drain := context.WithCancel(ctx)
		defer drain()
		join := func(ctx context.Context) (*jobs.Client, error) {
			err := p.Connect(ctx)
			return p.Queue, err
		}
		err = process.RunWorker(accept, work, assembly.WorkerOptions{
			Config: p.Config, Version: "test", Telemetry: p.Telemetry, Join: join, Ready: func() {}, Drain: drain,
		})
		err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	}
	os.Exit(process.Exit(ctx, "worker", err, os.Stderr))
}
