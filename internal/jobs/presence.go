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
)

const presenceEvery = 3 * time.Second

// WorkerInfo is what a worker says about itself, every few seconds.
type WorkerInfo struct {
	Name    string         `json:"name"`
	Host    string         `json:"host"`
	Version string         `json:"version,omitempty"`
	Started time.Time      `json:"started"`
	Seen    time.Time      `json:"seen"`
	Pools   []string       `json:"pools"`
	Slots   int            `json:"slots"`
	Busy    int            `json:"busy"`
	State   string         `json:"state"`             // running | draining
	Sandbox map[string]any `json:"sandbox,omitempty"` // driver, engine_version, tier, limits
	Boxes   map[string]int `json:"boxes,omitempty"`   // warming, ready, bound, leased, max
	Extra   map[string]any `json:"extra,omitempty"`

	Environments []EnvironmentInfo `json:"environments,omitempty"`
}

// EnvironmentInfo is what one or more pools of a worker have: each pool the environment of its name,
// or the first.
type EnvironmentInfo struct {
	Name     string         `json:"name"`
	What     string         `json:"what,omitempty"`     // empty until it was prepared
	Packages []string       `json:"packages,omitempty"` // with versions, beside Python's own modules
	Boxes    map[string]int `json:"boxes,omitempty"`    // warming, ready, bound, leased, waiting
	Error    string         `json:"error,omitempty"`    // why it has no boxes
	Reason   string         `json:"reason,omitempty"`   // the same in a word
}

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
func (w *Worker) Info() WorkerInfo {
	var info WorkerInfo
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
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
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
	all := make([]WorkerInfo, 0, len(keys))
	for _, key := range keys {
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) { // just gone
			continue
		}
		var info WorkerInfo
		if err == nil {
			err = json.Unmarshal(e.Value(), &info)
		}
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b WorkerInfo) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
