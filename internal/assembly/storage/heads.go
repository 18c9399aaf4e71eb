package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/assembly/queue"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/createonly"
	"github.com/codefleet/codefleet/internal/state/heads/natsheads"
	"github.com/codefleet/codefleet/internal/state/heads/singlewriter"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/text"
)

// withHeads returns the bucket with the head mode that s3.heads selects.
func withHeads(c *config.Config, bucket objects.Objects) (objects.Objects, error) {
	switch c.S3.Heads {
	case config.HeadsCreate:
		return heads.With(bucket, createonly.New(bucket)), nil
	case config.HeadsNATS:
		if c.NATS.URL == "" {
			return nil, errors.New("s3.heads is nats but nats.url is empty: set it to the address of the NATS server")
		}
		return heads.With(bucket, natsheads.New(func() (*jobs.HeadBucket, error) { return openHeads(c) })), nil
	case config.HeadsSingleWriter:
		lock := singlewriter.HostLock(filepath.Join(c.Data, "heads.lock"))
		return heads.With(bucket, singlewriter.New(bucket, lock)), nil
	case config.HeadsCAS:
		return bucket, nil
	default:
		return nil, fmt.Errorf("s3.heads: unknown head mode %q", c.S3.Heads)
	}
}

// Check probes the object store, and returns an error if the configured head mode is not safe on it or differs
// from the mode in use. The embedded store with the mode s3-cas needs no check.
func Check(ctx context.Context, c *config.Config, store *state.Store) error {
	if c.S3.Embedded && c.S3.Heads == config.HeadsCAS {
		return nil
	}
	caps, err := heads.Probe(ctx, store.Repo().Bucket)
	endpoint := text.HideCredentials(c.S3.Endpoint)
	if errors.Is(err, objects.ErrUnsafe) {
		return fmt.Errorf("object store %s: %w (set s3.heads: %s)", endpoint, err, SafeModes(caps))
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", endpoint, err)
	}
	return heads.RequireMode(ctx, store.Repo().Bucket, c.S3.Heads)
}

// SafeModes returns text for an error message: the values of s3.heads that are safe on a store that lacks some
// conditional writes.
func SafeModes(caps heads.Capabilities) string {
	out := config.HeadsNATS + ", or " + config.HeadsSingleWriter + " if only one host writes"
	if caps.CanCreate() {
		out = config.HeadsCreate + ", " + out
	}
	return out
}

// openHeads opens a bucket for HEADs over a connection to the queue that stays open until the process ends.
func openHeads(c *config.Config) (*jobs.HeadBucket, error) {
	ctx := context.Background() // for the whole process; each request has a context of its own
	t, err := telemetry.Setup(ctx, telemetry.Options{Log: telemetry.LogOptions{Output: io.Discard}})
	if err != nil {
		return nil, err
	}
	o, err := queue.Options(c, t, "codefleet heads")
	if err != nil {
		return nil, err
	}
	client, err := jobs.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	bucket, err := client.OpenHeadBucket(ctx)
	if err != nil {
		client.Close()
	}
	return bucket, err
}
