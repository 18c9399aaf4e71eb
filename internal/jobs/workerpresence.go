package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const presenceEvery = presenceTTL / 3

// Info returns the worker's presence.
func (w *Worker) Info() schemas.Worker {
	var info schemas.Worker
	if w.opts.Info != nil {
		info = w.opts.Info()
	}
	info.Name, info.Host, info.Started, info.Seen = w.opts.Name, w.host, w.started, time.Now().UTC()
	info.Pools, info.Slots, info.Busy, info.State = w.opts.Pools, w.opts.Slots, int(w.busy.Load()), "running"
	info.Declines, info.SettingsOnly = w.opts.Tenants.Declined, w.opts.Tenants.SettingsOnly
	info.Drains = w.opts.Drain != nil
	if w.draining.Load() {
		info.State = "draining"
	}
	return info
}

// publishPresence publishes the worker's presence until ctx ends, and then removes it.
func (w *Worker) publishPresence(ctx, late context.Context) {
	every := time.NewTicker(presenceEvery)
	defer every.Stop()
	key := subjectEncoding.EncodeToString([]byte(w.opts.Name)) // a name may be any string
	out := outage{log: w.log, failed: "presence not published", again: "presence published again"}
	for {
		out.report(ctx, w.publishInfo(ctx, key))
		select {
		case <-every.C:
		case <-ctx.Done():
			ctx, cancel := detached(ctx, late, time.Second)
			defer cancel()
			if kv, err := w.c.js.KeyValue(ctx, bucketWorkers); err == nil {
				w.logError(ctx, "presence not removed", kv.Purge(ctx, key))
			}
			w.dropOrder(ctx)
			return
		}
	}
}

func (w *Worker) publishInfo(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	data, err := json.Marshal(w.Info())
	if err != nil {
		return err
	}
	publish := func() error {
		_, err := w.c.js.Publish(ctx, "$KV."+bucketWorkers+"."+key, data)
		return err
	}
	if err := publish(); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	replicas, err := w.c.replicas(ctx) // a server that was restarted has lost what was in memory
	if err == nil {
		err = w.c.provisionWorkers(ctx, replicas)
	}
	if err == nil {
		err = publish()
	}
	return err
}
