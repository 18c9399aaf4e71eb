package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/text"
)

const (
	waitInterval = time.Second     // time between attempts to reach a part of the fleet
	checkLimit   = 3 * time.Second // limit of a request that only checks whether a part responds
)

// wait calls try until it succeeds, or fails with an error that is not temporary, or ctx ends. It logs when it begins
// to wait, and when a wait has succeeded.
func wait(
	ctx context.Context, log *slog.Logger, part string, temporary func(error) bool, try func(context.Context) error,
) error {
	for waited := false; ; waited = true {
		err := try(ctx)
		if err == nil && waited {
			log.InfoContext(ctx, "wait ended", "for", part)
		}
		if err == nil || !temporary(err) {
			return err
		}
		if !waited {
			log.WarnContext(ctx, "waiting for a part of the fleet", "for", part, "error", err)
		}
		if ended := clock.Sleep(ctx, waitInterval); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// provision creates the streams of the queue. It waits while the queue cannot do that, for example without a leader.
func (p *Process) provision(ctx context.Context) error {
	name := "the queue " + text.HideCredentials(p.Config.NATS.URL)
	err := wait(ctx, p.Telemetry.Logger, name, jobs.IsTemporary, p.Queue.Provision)
	if err != nil {
		return fmt.Errorf("create the streams: %w", err)
	}
	return nil
}

// AwaitStore waits until the object store responds. It fails at once after an error that is not temporary, such as
// wrong credentials or a missing bucket, which are an ErrUsage, and when ctx ends.
func (p *Process) AwaitStore(ctx context.Context, store *state.Store) error {
	name := "the object store " + text.HideCredentials(p.Config.S3.Endpoint)
	err := wait(ctx, p.Telemetry.Logger, name, temporaryStoreError,
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, checkLimit)
			defer cancel()
			return objects.Responds(ctx, store.Repo().Bucket)
		})
	if errors.Is(err, objects.ErrDenied) {
		return UsageError(fmt.Errorf("%s refuses access to the bucket %s: check s3.access_key (%s), "+
			"s3.secret_key (%s), the bucket's policy and this host's clock: %w", name, p.Config.S3.Bucket,
			p.Config.Origin("s3.access_key"), p.Config.Origin("s3.secret_key"), err))
	}
	if errors.Is(err, objects.ErrNoBucket) {
		return UsageError(fmt.Errorf("%s has no bucket %s: create it, or check s3.bucket (%s): %w", name,
			p.Config.S3.Bucket, p.Config.Origin("s3.bucket"), err))
	}
	return err
}

func temporaryStoreError(err error) bool {
	return errors.Is(err, objects.ErrTemporary) || errors.Is(err, context.DeadlineExceeded)
}
