package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/codefleet/codefleet/internal/metrics"
	"github.com/codefleet/codefleet/schemas"
)

const (
	observeEvery   = 5 * time.Second // time between readings for the metrics, however many scrapers there are
	observeTimeout = 3 * time.Second // time limit of a reading; Prometheus waits for 10 s
	maxBacklogs    = 20              // tenants whose backlog has a time series of its own
)

// overview is the state of the fleet from which its metrics are computed.
type overview struct {
	load
	workers []schemas.Worker
	streams []*jetstream.StreamInfo
}

// Observe registers the metrics of the whole fleet until unregister is called. They are read from the queue when they
// are collected, and are absent while that fails.
func (c *Client) Observe() (unregister func(), err error) { return c.observe(observeEvery) }

// observe is Observe with readings that are at most maxAge old.
func (c *Client) observe(maxAge time.Duration) (unregister func(), err error) {
	m := metrics.New(c.opts.Meter)
	g := gauges{
		tasks: m.Gauge(metrics.BacklogTasks), tenant: m.Gauge(metrics.BacklogTenant),
		oldest: m.TimeGauge(metrics.BacklogOldest), slotTime: m.TimeGauge(metrics.BacklogSlotTime),
		workers: m.Gauge(metrics.FleetWorkers), slots: m.Gauge(metrics.FleetSlots),
		messages: m.Gauge(metrics.QueueMessages), size: m.Gauge(metrics.QueueSize),
	}
	var mu sync.Mutex
	var latest overview
	var readAt time.Time
	out := outage{log: c.opts.Log, failed: "metrics of the fleet not read", again: "metrics of the fleet read again"}
	return m.Observe(func(ctx context.Context, o metric.Observer) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(readAt) > maxAge {
			reading, cancel := context.WithTimeout(ctx, observeTimeout)
			defer cancel()
			now, err := c.overview(reading)
			out.report(ctx, err)
			if err != nil {
				return nil // reported
			}
			latest, readAt = now, time.Now()
		}
		g.observe(o, latest)
		return nil
	}, g.tasks, g.tenant, g.oldest, g.slotTime, g.workers, g.slots, g.messages, g.size)
}

// overview reads the state of the fleet.
func (c *Client) overview(ctx context.Context) (v overview, err error) {
	if v.load, err = c.readLoad(ctx); err != nil {
		return v, err
	}
	if v.workers, err = c.Workers(ctx); err != nil {
		return v, err
	}
	own := append(c.streamNames(), "KV_"+bucketHeads)
	list := c.js.ListStreams(ctx)
	for info := range list.Info() {
		if slices.Contains(own, info.Config.Name) { // other programs may use the account, too
			v.streams = append(v.streams, info)
		}
	}
	return v, list.Err()
}

// streamNames returns the names of the streams that every fleet has, with those of its buckets.
func (c *Client) streamNames() []string {
	list := []string{"OBJ_" + bucketObjects}
	for _, bucket := range []string{
		bucketWorkers, bucketCursors, bucketControls, bucketTokens, bucketAutomations, bucketWorkflows,
	} {
		list = append(list, "KV_"+bucket)
	}
	for _, s := range c.streams(1) {
		list = append(list, s.Name)
	}
	return list
}

// gauges are the instruments of Observe.
type gauges struct {
	tasks, tenant, workers, slots, messages, size metric.Int64ObservableGauge
	oldest, slotTime                              metric.Float64ObservableGauge
}

func (g gauges) observe(o metric.Observer, v overview) {
	with := func(pairs ...string) metric.MeasurementOption {
		var list []attribute.KeyValue
		for pair := range slices.Chunk(pairs, 2) {
			list = append(list, attribute.String(pair[0], pair[1]))
		}
		return metric.WithAttributes(list...)
	}
	for key, q := range v.queues {
		o.ObserveInt64(g.tasks, int64(q.Queued), with("pool", key.pool, "priority", key.priority, "state", "queued"))
		o.ObserveInt64(g.tasks, int64(q.Running), with("pool", key.pool, "priority", key.priority, "state", "running"))
		o.ObserveFloat64(g.oldest, q.OldestAgeS, with("pool", key.pool, "priority", key.priority))
		o.ObserveFloat64(g.slotTime, q.SlotSeconds, with("pool", key.pool, "priority", key.priority))
	}
	for tenant, n := range largest(v.queued, maxBacklogs) {
		o.ObserveInt64(g.tenant, int64(n), with("tenant", tenant))
	}
	running, draining, slots, busy := 0, 0, 0, 0
	for _, w := range v.workers {
		if w.State != "running" {
			draining++
			continue
		}
		running++
		slots += w.Slots
		busy += w.Busy
	}
	o.ObserveInt64(g.workers, int64(running), with("state", "running"))
	o.ObserveInt64(g.workers, int64(draining), with("state", "draining"))
	o.ObserveInt64(g.slots, int64(busy), with("state", "busy"))
	o.ObserveInt64(g.slots, int64(max(0, slots-busy)), with("state", "free"))
	for _, s := range v.streams {
		o.ObserveInt64(g.messages, int64(s.State.Msgs), with("stream", s.Config.Name))
		o.ObserveInt64(g.size, int64(s.State.Bytes), with("stream", s.Config.Name))
	}
}

// largest returns the n largest counts, without zeros, and the sum of the others as OtherTenants.
func largest(counts map[string]int, n int) map[string]int {
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	out := map[string]int{}
	for i, name := range order {
		switch {
		case counts[name] == 0:
		case i < n:
			out[name] = counts[name]
		default:
			out[OtherTenants] += counts[name]
		}
	}
	return out
}
