package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/schemas"
)

// What the scenario growth-queue measures. The targets are for -n 100.
const (
	queueStep   = 1000   // queued tasks, and their records, for each unit of -n
	tenantStep  = 10     // tenants for each unit of -n
	fileStep    = 100    // files for each unit of -n
	queuedStep  = 30     // tasks that are queued at once, for each unit of -n
	mostTenants = 1000   // tenants in all, at most
	mostFiles   = 10_000 // files in all, at most

	submitters = 64  // concurrent submissions
	mostQueued = 300 // tasks that are queued at once, at most
	lists      = 10  // measured lists by each status, after the first one
)

// growthQueue measures what many tasks, records, tenants and files cost.
func (b *Bench) growthQueue(ctx context.Context) error {
	for _, measure := range []func(context.Context) error{b.backlog, b.queuedRate, b.eachTenant, b.manyFiles} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	b.Summarise()
	return nil
}

// fleetQueue returns a connection to a fleet's queue, which may submit tasks of all tenants.
func fleetQueue(ctx context.Context, f *up.Fleet) (*jobs.Client, error) {
	return connectQueue(ctx, f.File.NATS)
}

func connectQueue(ctx context.Context, n config.FleetNATS) (*jobs.Client, error) {
	return jobs.Connect(ctx, jobs.Options{
		Server: jobs.Server{URL: n.URL}, Credentials: jobs.Credentials{User: n.User, Password: n.Password},
		Name: "codefleet bench",
	})
}

// submitAll submits tasks with the smallest program, each for the tenant that tenant returns, and returns their ids.
func submitAll(ctx context.Context, q *jobs.Client, tasks int, tenant func(i int) string) ([]string, error) {
	data, err := json.Marshal(client.Task{Code: SmallestProgram})
	if err != nil {
		return nil, err
	}
	ids := make([]string, tasks)
	g, ctx := errgroup.WithContext(ctx)
	for first := range submitters {
		g.Go(func() error {
			for i := first; i < tasks; i += submitters {
				ev := event.New()
				ev.SetID(strconv.Itoa(i) + "." + strconv.FormatInt(time.Now().UnixNano(), 36))
				ev.SetSource("codefleet/bench")
				ev.SetType(schemas.TypeTask)
				if err := ev.SetData(event.ApplicationJSON, data); err != nil {
					return err
				}
				rec, err := q.Submit(ctx, tenant(i), ev)
				if err != nil {
					return err
				}
				ids[i] = rec.TaskID
			}
			return nil
		})
	}
	return ids, g.Wait()
}

// awaitAll waits for tasks, and returns their records. It returns an error unless all tasks succeed.
func awaitAll(ctx context.Context, q *jobs.Client, ids []string, tenant func(i int) string) ([]schemas.Record, error) {
	all := make([]schemas.Record, len(ids))
	for i, id := range ids {
		rec, err := q.Wait(ctx, tenant(i), id)
		if err != nil {
			return nil, err
		}
		if rec.Status != schemas.Succeeded || rec.Result == nil {
			return nil, fmt.Errorf("task %s of tenant %s ended %s", id, tenant(i), rec.Status)
		}
		all[i] = rec
	}
	return all, nil
}

// endRate returns how many tasks ended per second, from the first end to the last.
func endRate(all []schemas.Record) float64 {
	first, last := all[0].EndedAt, all[0].EndedAt
	for _, r := range all {
		if r.EndedAt.Before(first) {
			first = r.EndedAt
		}
		if r.EndedAt.After(last) {
			last = r.EndedAt
		}
	}
	return float64(len(all)-1) / last.Sub(first).Seconds()
}

// backlog measures lists by status with many records, and a fleet with as many queued tasks: its start, and the rate at
// which it runs the first of them.
func (b *Bench) backlog(ctx context.Context) error {
	data, tasks := b.NewDir(), b.N*queueStep
	idle := func(c *config.Config) {
		c.Data, c.Queue.Backlog, c.Worker.Pools = data, 2*tasks, []string{"idle"}
	}
	if err := b.withFleet(ctx, idle, func(f *up.Fleet) error { return b.measureLists(ctx, f, tasks) }); err != nil {
		return err
	}
	start := time.Now()
	busy := func(c *config.Config) { c.Data, c.Queue.Backlog = data, 2*tasks }
	return b.withFleet(ctx, busy, func(f *up.Fleet) error {
		b.AtMost("G9", fmt.Sprintf("start with %d tasks queued", tasks), time.Since(start).Seconds(), 3, "s")
		c, err := httpClient(ctx, f)
		if err != nil {
			return err
		}
		defer c.Close()
		all, err := b.awaitSucceeded(ctx, c, min(b.N*queuedStep, mostQueued, tasks))
		if err == nil {
			b.Add("queued tasks with more behind them", "tasks/s", endRate(all))
		}
		return err
	})
}

// withFleet calls fn with a fleet and stops the fleet.
func (b *Bench) withFleet(ctx context.Context, change func(*config.Config), fn func(*up.Fleet) error) error {
	f, stop, err := b.StartFleet(ctx, change, process.RunWorker)
	if err != nil {
		return err
	}
	return errors.Join(fn(f), stop())
}

// httpClient returns a client of the fleet's HTTP interface.
func httpClient(ctx context.Context, f *up.Fleet) (*client.Client, error) {
	return client.New(ctx, client.Options{URL: f.File.URL, Token: f.File.Token})
}

// measureLists submits tasks that no worker runs, and lists their records by status.
func (b *Bench) measureLists(ctx context.Context, f *up.Fleet, tasks int) error {
	q, err := fleetQueue(ctx, f)
	if err != nil {
		return err
	}
	defer q.Close()
	start := time.Now()
	for done := 0; done < tasks; done += queueStep {
		b.Progress(fmt.Sprintf("growth-queue: task %d of %d", done, tasks))
		if _, err := submitAll(ctx, q, min(queueStep, tasks-done), tenantOf(f)); err != nil {
			return err
		}
	}
	b.Add("submission", "tasks/s", float64(tasks)/time.Since(start).Seconds())
	c, err := httpClient(ctx, f)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range 1 + lists {
		for _, status := range []client.Status{client.Failed, client.Queued} { // the status of no record, and of all
			start := time.Now()
			if _, err := c.List(ctx, client.ListOptions{Status: []client.Status{status}}); err != nil {
				return err
			}
			switch took := Since(start); {
			case i > 0:
				b.Add("list by status "+string(status), "ms", took)
			case status == client.Failed:
				b.AtMost("G7", fmt.Sprintf("first list by a status, %d records", tasks), took, 200, "ms")
			}
		}
	}
	b.Summarise()
	b.AtMost("G8", "later lists by a status",
		max(b.Median("list by status failed"), b.Median("list by status queued")), 200, "ms")
	return nil
}

// tenantOf returns a function that names the fleet's first tenant for each task.
func tenantOf(f *up.Fleet) func(int) string { return func(int) string { return f.File.Tenant } }

// awaitSucceeded waits until a number of the fleet's tasks have succeeded, and returns their records.
func (b *Bench) awaitSucceeded(ctx context.Context, c *client.Client, tasks int) ([]schemas.Record, error) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		all, err := c.List(ctx, client.ListOptions{Status: []client.Status{client.Succeeded}, Limit: tasks})
		if api, ok := errors.AsType[*client.APIError](err); ok && api.Code == errcode.Unavailable {
			err = nil // the fleet has just started, and cannot list tasks yet
		}
		if err != nil || len(all) >= tasks {
			return all, err
		}
		b.Progress(fmt.Sprintf("growth-queue: %d of %d tasks have ended", len(all), tasks))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
