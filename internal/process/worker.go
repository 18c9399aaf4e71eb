package process

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/worker"
)

// RunWorker runs one worker: it claims tasks until accept ends, then lets running tasks finish until work ends.
func RunWorker(accept, work context.Context, o assembly.WorkerOptions) error {
	parts, release, err := assembly.Worker(accept, o)
	if err != nil {
		return err
	}
	return errors.Join(worker.Run(accept, work, parts), release())
}
