package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

const presenceEvery = 3 * time.Second

func (w *Worker) setBusy(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = n
}

func (w *Worker) setDraining() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drained = true
}

// Info is what presence shows of this worker now.
func (w *Worker) Info() schemas.Worker {
	var info schemas.Worker
	if w.opts.Info != nil {
		info = w.opts.Info()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	info.Name, info.Host, info.Started, info.Seen = w.opts.Name, w.host, w.started, time.Now().UTC()
	info.Pools, info.Slots, info.Busy, info.State = w.opts.Pools, w.opts.Slots, w.busy, "running"
	if w.drained {
		info.State = "draining"
	}
	return info
}

// present shows signs of life until ctx ends, then takes its sign down.
func (w *Worker) present(ctx context.Context) {
	every := time.NewTicker(presenceEvery)
	defer every.Stop()
	key := presenceKey(w.opts.Name)
	for {
		if err := w.showUp(ctx, key); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "presence", "error", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if kv, err := w.c.js.KeyValue(leave, bucketWorkers); err == nil {
				w.logged(leave, "presence", kv.Purge(leave, key))
			}
			return
		}
	}
}

func (w *Worker) showUp(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	data, err := json.Marshal(w.Info())
	if err != nil {
		return err
	}
	_, err = w.c.js.Publish(ctx, "$KV."+bucketWorkers+"."+key, data)
	return err
}

// presenceKey spells a worker's name so that it is one token of a subject.
func presenceKey(name string) string { return taskIDEncoding.EncodeToString([]byte(name)) }

// Workers returns the workers that showed signs of life within the last seconds, by name.
func (c *Client) Workers(ctx context.Context) ([]schemas.Worker, error) {
	kv, err := c.js.KeyValue(ctx, bucketWorkers)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	keys, err := kv.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	all := make([]schemas.Worker, 0, len(keys))
	for _, key := range keys {
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) { // just gone
			continue
		}
		var info schemas.Worker
		if err == nil {
			err = json.Unmarshal(e.Value(), &info)
		}
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b schemas.Worker) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
