package embedded

import (
	"context"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/codefleet/codefleet/internal/clock"
)

// Free space of the streams' disk, in bytes.
const (
	stopBelow  = 4 << 20  // JetStream stops: the next write may fail
	startAbove = 64 << 20 // it starts again
)

const diskInterval = time.Second // between two looks at the disk

// guardDisk stops JetStream while the disk of the streams is full, until ctx ends. A stream that could not write once
// would take no messages until JetStream starts again, and would still respond as if it did.
func (n *NATS) guardDisk(ctx context.Context, opts NATSOptions, maxStore int64, output *natsLog) {
	log := opts.Log.With("dir", opts.Dir)
	for clock.Sleep(ctx, diskInterval) == nil {
		free, err := freeBytes(opts.Dir)
		if err != nil {
			log.WarnContext(ctx, "free disk space of the queue unknown", "error", err)
			continue
		}
		switch runs := n.srv.JetStreamEnabled(); {
		case runs && (free < stopBelow || output.diskFull.Load()):
			log.ErrorContext(ctx, "the queue stops until its disk has space",
				"free_mb", free>>20, "want_mb", startAbove>>20)
			err = n.srv.ShutdownJetStream()
		case !runs && free >= startAbove:
			output.diskFull.Store(false)
			err = n.srv.EnableJetStream(&server.JetStreamConfig{StoreDir: opts.Dir, MaxStore: maxStore})
			if err == nil {
				log.WarnContext(ctx, "the queue's disk has space again: the queue continues", "free_mb", free>>20)
			}
		}
		if err != nil {
			log.ErrorContext(ctx, "JetStream neither stopped nor started", "error", err)
		}
	}
}
