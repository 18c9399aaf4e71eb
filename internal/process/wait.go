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
)

const (
	waitPause  = time.Second     // between attempts to reach a part of the fleet
	checkLimit = 3 * time.Second // of a request that only shows that a part responds
)

// wait calls try until it succeeds, or fails with an error that does not heal, or ctx ends. It logs what it waits for
// once, and the end of the wait.
func wait(
	ctx context.Context, log *slog.Logger, what string, heals func(error) bool, try func(context.Context) error,
) error {
	for waited := false; ; waited = true {
		err := try(ctx)
		if err == nil && waited {
			log.InfoContext(ctx, "wait ended", "for", what)
		}
		if err == nil || !heals(err) {
			return err
		}
		if !waited {
			log.WarnContext(ctx, "waiting for a part of the fleet", "for", what, "error", err)
		}
		if ended := clock.Sleep(ctx, waitPause); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// provision creates the streams. It waits while the queue has no leader.
func (p *Process) provision(ctx context.Context) error {
	err := wait(ctx, p.Telemetry.Logger, "the queue "+p.Config.NATS.URL, jobs.Heals, p.Queue.Provision)
	if err != nil {
		return fmt.Errorf("create the streams: %w", err)
	}
	return nil
}

// AwaitStore waits until the object store responds. The error is one that does not heal, such as wrong credentials.
func (p *Process) AwaitStore(ctx context.Context, store *state.Store) error {
	return wait(ctx, p.Telemetry.Logger, "the object store "+p.Config.S3.Endpoint, storeHeals,
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, checkLimit)
			defer cancel()
			return objects.Responds(ctx, store.Repo().Bucket)
		})
}

func storeHeals(err error) bool {
	return errors.Is(err, objects.ErrTemporary) || errors.Is(err, context.DeadlineExceeded)
}
