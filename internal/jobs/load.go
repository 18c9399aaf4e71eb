package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// load is what the fleet has to do.
type load struct {
	queues map[poolQueue]*schemas.Backlog
	queued map[string]int // by tenant
}

// poolQueue is the queue of one pool and priority, for all tenants.
type poolQueue struct{ pool, priority string }

const (
	// meanTenants is the number of tenants for which the mean duration of a task is read: those with the most queued
	// tasks. For other tenants, the mean over these tenants is used. The server responds to a request with at most
	// 1,024 counts.
	meanTenants = 200
	unknownMean = 1.0 // seconds, if no task has ended since yesterday
	oldestBatch = 16  // messages per request
	oldestBytes = 256 << 10

	defaultWithin = time.Minute // the time within which the queued tasks are to be done
)

// Demand returns the load of a task pool, or of all task pools if pool is empty. Its Slots are those of the running
// tasks plus those that can do the queued tasks within the given time, by default one minute.
func (c *Client) Demand(ctx context.Context, pool string, within time.Duration) (schemas.Demand, error) {
	within = cmp.Or(within, defaultWithin)
	d := schemas.Demand{Backlog: schemas.Backlog{Pool: pool}, WithinS: within.Seconds()}
	pools, err := c.Backlog(ctx)
	if err != nil {
		return d, err
	}
	for _, b := range pools {
		if pool != "" && b.Pool != pool {
			continue
		}
		d.Queued += b.Queued
		d.Running += b.Running
		d.SlotSeconds += b.SlotSeconds
		d.OldestAgeS = max(d.OldestAgeS, b.OldestAgeS)
	}
	d.Slots = d.Running + min(d.Queued, int(math.Ceil(d.SlotSeconds/within.Seconds())))
	return d, nil
}

// readLoad reads the counts of the queue one after another, some milliseconds apart, so they may not
// agree.
func (c *Client) readLoad(ctx context.Context) (load, error) {
	found := load{queues: map[poolQueue]*schemas.Backlog{}, queued: map[string]int{}}
	subjects, err := c.taskSubjects(ctx)
	if err != nil {
		return found, fmt.Errorf("read backlog: %w", err)
	}
	left, _ := byLane(subjects)
	if len(left) == 0 {
		return found, nil
	}
	delivered, err := c.moveRunning(ctx, left, found)
	if err != nil {
		return found, fmt.Errorf("read backlog: %w", err)
	}
	for l, n := range left {
		found.queued[l.tenant] += n
	}
	means, err := c.meanRuns(ctx, found.queued)
	if err != nil {
		return found, fmt.Errorf("read the mean duration of tasks: %w", err)
	}
	for l, n := range left {
		q := found.queues[poolQueue{l.pool, l.priority}]
		q.Queued += n
		q.SlotSeconds += float64(n) * means(l.tenant)
	}
	for key, q := range found.queues {
		q.SlotSeconds = math.Round(q.SlotSeconds*1000) / 1000
		if q.Queued == 0 {
			continue
		}
		stored, err := c.oldestQueued(ctx, key, left, delivered)
		if err != nil {
			return found, fmt.Errorf("find the oldest queued task: %w", err)
		}
		if !stored.IsZero() {
			q.OldestAgeS = max(0, time.Since(stored).Seconds())
		}
	}
	return found, nil
}

// moveRunning subtracts from left, which has the messages by lane, those that workers have, and counts them as running
// tasks of the load. It returns the stream sequence of the last message that each lane's consumer has delivered.
func (c *Client) moveRunning(ctx context.Context, left map[lane]int, found load) (map[lane]uint64, error) {
	for l := range left {
		key := poolQueue{l.pool, l.priority}
		if found.queues[key] == nil {
			found.queues[key] = &schemas.Backlog{Pool: l.pool}
		}
	}
	stream, err := c.js.Stream(ctx, streamTasks)
	if err != nil {
		return nil, err
	}
	delivered := map[lane]uint64{}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		l, ok := laneOf(info.Config.FilterSubject)
		if _, unfinished := left[l]; ok && unfinished {
			running := min(info.NumAckPending, left[l])
			found.queues[poolQueue{l.pool, l.priority}].Running += running
			left[l] -= running
			delivered[l] = info.Delivered.Stream
		}
	}
	return delivered, consumers.Err()
}

// errFound ends a search.
var errFound = errors.New("found")

// oldestQueued returns the time at which the oldest message of a queue was stored, among those that no worker has. It
// returns the zero time if all messages have been delivered in the meantime, or were before and returned to
// the queue.
func (c *Client) oldestQueued(
	ctx context.Context, key poolQueue, left map[lane]int, delivered map[lane]uint64,
) (stored time.Time, err error) {
	first := uint64(math.MaxUint64)
	for l, n := range left {
		if l.pool == key.pool && l.priority == key.priority && n > 0 {
			first = min(first, delivered[l]+1)
		}
	}
	subject := lane{key.pool, key.priority, "*"}.subject()
	for more := true; more; {
		query := map[string]any{
			"seq": first, "next_by_subj": subject, "batch": oldestBatch, "max_bytes": oldestBytes,
		}
		first, more, err = c.directGet(ctx, streamTasks, query, func(m *nats.Msg, seq uint64) error {
			l, ok := laneOf(m.Header.Get(jetstream.SubjectHeader))
			if !ok || seq <= delivered[l] {
				return nil // a worker has it, or has returned it
			}
			stored, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
			return cmp.Or(err, errFound)
		})
		if errors.Is(err, errFound) {
			return stored, nil
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, nil
}

// meanRuns returns a function that returns the mean time for which a tenant's tasks used a slot, in seconds, over
// yesterday and today.
func (c *Client) meanRuns(ctx context.Context, queued map[string]int) (func(tenant string) float64, error) {
	tenants := slices.SortedFunc(maps.Keys(queued), func(a, b string) int {
		return cmp.Or(cmp.Compare(queued[b], queued[a]), cmp.Compare(a, b))
	})
	tenants = tenants[:min(len(tenants), meanTenants)]
	now := time.Now()
	var subjects []string
	for _, tenant := range tenants {
		for _, day := range []time.Time{now.AddDate(0, 0, -1), now} {
			subjects = append(subjects, usageSubject(tenant, day, tallyBox), usageSubject(tenant, day, tallyTasks))
		}
	}
	type total struct{ seconds, tasks float64 }
	byTenant, all := map[string]total{}, total{}
	query := map[string]any{"multi_last": subjects, "batch": len(subjects)}
	_, _, err := c.directGet(ctx, streamSpent, query, func(m *nats.Msg, _ uint64) error {
		n, err := parseCounter(m.Data)
		parts := strings.Split(m.Header.Get(jetstream.SubjectHeader), ".")
		if err != nil || len(parts) != 4 {
			return err
		}
		t := byTenant[parts[1]]
		if parts[3] == tallyTasks {
			t.tasks += float64(n)
			all.tasks += float64(n)
		} else {
			t.seconds += float64(n) / 1000
			all.seconds += float64(n) / 1000
		}
		byTenant[parts[1]] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(tenant string) float64 {
		switch t := byTenant[tenant]; {
		case t.tasks > 0:
			return t.seconds / t.tasks
		case all.tasks > 0:
			return all.seconds / all.tasks
		}
		return unknownMean
	}, nil
}
