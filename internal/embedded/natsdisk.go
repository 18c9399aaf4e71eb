package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/codefleet/codefleet/internal/clock"
)

const (
	// startSpace is how many bytes must be free and writable on the disk of the streams before a server that was
	// stopped starts again.
	startSpace   = 64 << 20
	diskInterval = time.Second // between two looks at the server, and before the first attempt to start it again
	maxPause     = 15 * time.Second
)

// guardDisk stops the server once a write has failed because the disk of the streams is full, and starts it again when
// the disk takes startSpace bytes, until ctx ends. A stream that could not write once takes no messages until the
// server is restarted, and still responds as if it did.
func (n *NATS) guardDisk(ctx context.Context) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = diskInterval, maxPause
	started := time.Now()
	for clock.Sleep(ctx, diskInterval) == nil {
		srv, output := n.server()
		if !output.diskFull.Load() && srv.JetStreamEnabled() {
			continue
		}
		n.opts.Log.ErrorContext(ctx, "the queue stops until its disk can be written to",
			"dir", n.opts.Dir, "want_mb", startSpace>>20)
		n.shutdown()
		if time.Since(started) > 2*maxPause { // otherwise the disk had no space although the probe fitted
			retry.Reset()
		}
		if n.startAgain(ctx, retry) != nil {
			return
		}
		started = time.Now()
	}
}

// startAgain starts the server when its disk has space. It returns an error only when ctx ends.
func (n *NATS) startAgain(ctx context.Context, retry *backoff.ExponentialBackOff) error {
	log, problem := n.opts.Log.With("dir", n.opts.Dir), ""
	for {
		if err := clock.Sleep(ctx, retry.NextBackOff()); err != nil {
			return err
		}
		err := probeSpace(n.opts.Dir)
		if err == nil {
			err = n.start(ctx)
		}
		if err == nil {
			log.WarnContext(ctx, "the queue's disk can be written to again: the queue continues")
			return nil
		}
		if err.Error() != problem {
			problem = err.Error()
			log.WarnContext(ctx, "the queue cannot start yet", "error", err)
		}
	}
}

// probeSpace returns an error unless startSpace bytes can be written to dir. Free bytes alone do not tell: a quota may
// be exhausted, and a part of the disk may be reserved for root.
func probeSpace(dir string) error {
	available, reserved, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		available += reserved
	}
	if available < startSpace {
		return fmt.Errorf("%s has less than %d MB of free space", dir, startSpace>>20)
	}
	probe, err := os.CreateTemp(dir, ".space-probe-")
	if err != nil {
		return err
	}
	err = os.Remove(probe.Name()) // the space is free again when the file is closed, or the process ends
	if err == nil {
		random := rand.NewChaCha8([32]byte{}) // a disk may compress zeros
		_, err = io.CopyN(probe, random, startSpace)
	}
	if err == nil {
		err = probe.Sync() // the disk may only then turn out to be full
	}
	return errors.Join(err, probe.Close())
}
