package embedded

import (
	"context"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

// Free space of the streams' disk, in bytes.
const (
	stopBelow  = 4 << 20  // the server stops: the next write may fail
	startAbove = 64 << 20 // it starts again
)

const diskInterval = time.Second // between two looks at the disk

// guardDisk stops the server while the disk of the streams is full, until ctx ends. A stream that could not write once
// takes no messages until the server is restarted, and still responds as if it did.
func (n *NATS) guardDisk(ctx context.Context) {
	log := n.opts.Log.With("dir", n.opts.Dir)
	for clock.Sleep(ctx, diskInterval) == nil {
		free, err := freeBytes(n.opts.Dir)
		if err != nil {
			log.WarnContext(ctx, "free disk space of the queue unknown", "error", err)
			continue
		}
		srv, output := n.server()
		if srv != nil && (free < stopBelow || output.diskFull.Load() || !srv.JetStreamEnabled()) {
			log.ErrorContext(ctx, "the queue stops until its disk has space",
				"free_mb", free>>20, "want_mb", startAbove>>20)
			n.shutdown()
			srv = nil
		}
		if srv != nil || free < startAbove {
			continue
		}
		if err := n.start(ctx); err != nil {
			log.ErrorContext(ctx, "the queue does not start again", "error", err)
			continue
		}
		log.WarnContext(ctx, "the queue's disk has space again: the queue continues", "free_mb", free>>20)
	}
}
