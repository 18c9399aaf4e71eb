package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// queue checks that the configured queue accepts a connection.
func (p *hostCheck) queue(ctx context.Context) checkResult {
	const name = "queue"
	if p.NATS.URL == "" {
		return passed(name, "embedded nats-server %s, syncs every write to disk before it acknowledges it",
			moduleVersion("github.com/nats-io/nats-server/v2"))
	}
	t, err := telemetry.Setup(ctx, telemetry.Options{})
	if err != nil {
		return checkResult{name, problem, err.Error(), ""}
	}
	o, err := queue.Options(p.Config, t, "codefleet doctor")
	if err != nil {
		return checkResult{name, problem, err.Error(), ""}
	}
	q, err := jobs.Connect(ctx, o)
	switch {
	case errors.Is(err, jobs.ErrServerTooOld):
		return checkResult{name, problem, err.Error(), "upgrade it to " + jobs.MinServer + " or newer"}
	case err != nil:
		return checkResult{
			name, problem, fmt.Sprintf("the server at nats.url does not respond: %v", err),
			"check the address (codefleet config show) and the server",
		}
	}
	q.Close()
	return checkResult{
		name, warning, "connected; a client cannot see whether the server syncs each write to disk",
		"make sure that sync_interval: always is in the server's jetstream section",
	}
}

// store checks that the configured object store supports what workspaces need.
func (p *hostCheck) store(ctx context.Context) checkResult {
	const name = "object store"
	if p.S3.Endpoint == "" {
		version := moduleVersion("github.com/versity/versitygw")
		return passed(name, "embedded, versitygw %s, conditional writes", version)
	}
	store, err := storage.Open(p.Config, "", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return checkResult{name, problem, err.Error(), "codefleet config show"}
	}
	found, err := heads.Probe(ctx, store.Repo().Bucket)
	if errors.Is(err, objects.ErrUnsafe) {
		return checkResult{name, problem, found.Summary + "; codefleet does not start with it", "set s3.heads: " +
			storage.SafeModes(found)}
	}
	if err != nil {
		return checkResult{name, problem, err.Error(), "check endpoint, bucket and keys: codefleet config show"}
	}
	detail := found.Summary
	switch p.S3.Heads {
	case config.HeadsCAS:
	case config.HeadsSingleWriter:
		return checkResult{
			name, warning,
			"HEAD is not swapped atomically: workers on two hosts would overwrite each other's commits (s3.heads: " +
				p.S3.Heads + ")",
			"use a store with conditional writes, or set s3.heads: " + config.HeadsNATS,
		}
	default:
		detail += " (s3.heads: " + p.S3.Heads + ")"
	}
	return passed(name, "%s", detail)
}
