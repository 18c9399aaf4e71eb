package main

import (
	"context"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/wire"
)

func runWorker(take, work context.Context, c *config.Config, queue *jobs.Client, t *telemetry.Telemetry, ready func()) error {
	return wire.Worker(take, work, c, queue, t, version, ready)
}

func noBench(context.Context, benchOptions) error { return usage("this build measures nothing yet") }
