package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/wire"
)

// probeQueue connects to the queue that the settings name.
func (a *app) probeQueue(ctx context.Context, c *config.Config) finding {
	const name = "queue"
	t, err := telemetry.Setup(ctx, telemetry.Options{})
	if err != nil {
		return finding{name, problem, err.Error(), ""}
	}
	o, err := wire.Jobs(c, t, "codefleet doctor")
	if err != nil {
		return finding{name, problem, err.Error(), ""}
	}
	q, err := jobs.Connect(ctx, o)
	switch {
	case errors.Is(err, jobs.ErrServerOld):
		return finding{name, problem, err.Error(), "upgrade it to " + jobs.MinServer + " or newer"}
	case err != nil:
		return finding{name, problem, fmt.Sprintf("nats.url does not answer: %v", err), "is the address right (codefleet config show), and the server running?"}
	}
	q.Close()
	return finding{name, warning, "answers; whether it writes to disk at once cannot be seen from here", "set sync_interval: always in the server's jetstream section"}
}

// probeStore tries what the workspaces need of the object store that the settings name.
func (a *app) probeStore(ctx context.Context, c *config.Config) finding {
	const name = "object store"
	store, err := wire.Store(c, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return finding{name, problem, err.Error(), "codefleet config show"}
	}
	found, err := store.Probe(ctx)
	if err != nil {
		return finding{name, problem, err.Error(), "a store with conditional writes (If-Match, If-None-Match) is needed; check endpoint, bucket and keys"}
	}
	return finding{name, good, fmt.Sprintf("%s (%s a request)", found.Verdict, short(found.Latency)), ""}
}
