package process

import (
	"context"
	"errors"
	"time"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/worker"
)

const (
	// ExitTime is how long a process may take to exit after worker.drain has passed.
	ExitTime = time.Second
	// releaseTime is the part of ExitTime in which a worker requeues its tasks and destroys its boxes.
	releaseTime = ExitTime * 80 / 100
	// CloseTime is the part of ExitTime after which open connections are abandoned.
	CloseTime = ExitTime * 85 / 100
)

// RunWorker runs one worker: it claims tasks until accept ends, then lets running tasks finish until work ends. It
// returns at most releaseTime after the end of work, even if the object store, the queue or a box does not respond. In
// that case the next worker on this host removes the boxes, and the leases of running tasks expire.
func RunWorker(accept, work context.Context, o assembly.WorkerOptions) error {
	late, cancel := clock.After(work, releaseTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runWorker(accept, work, o) }() // outlives RunWorker only until the process exits
	select {
	case err := <-ended:
		return err
	case <-late.Done():
		o.Telemetry.Logger.WarnContext(accept, "worker stopped before everything was released",
			"drain", o.Config.Worker.Drain, "left", "leases expire, and the next worker removes boxes")
		return nil
	}
}

func runWorker(accept, work context.Context, o assembly.WorkerOptions) error {
	parts, release, err := assembly.Worker(accept, o)
	if err != nil {
		return err
	}
	return errors.Join(worker.Run(accept, work, parts), release())
}
