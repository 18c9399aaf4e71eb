package main

import (
	"context"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// idle stands in for a worker that takes no task.
func idle(take, _ context.Context, _ *config.Config, _ *jobs.Client, _ *telemetry.Telemetry, ready func()) error {
	ready()
	<-take.Done()
	return nil
}

func noBench(context.Context, benchOptions) error { return usage("this build measures nothing yet") }
