package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// The scenario fairness runs the real queue, on disk, and a real worker. Its tasks hold their slot for a time without
// a sandbox, so that the measured waits are those that the turns of the tenants cause.
const (
	fairSlots  = 4                      // slots of the worker
	quietTask  = 50 * time.Millisecond  // length of the quiet tenant's tasks
	quietEvery = 100 * time.Millisecond // interval between these tasks
	noisyTask  = time.Second            // length of the noisy tenant's tasks for N8
	jainTime   = 10 * time.Second       // how long the shares are measured
)

// fairTask is a task of the scenario, which holds its slot for a time.
type fairTask struct {
	tenant string
	length time.Duration
}

// fairness measures how long a quiet tenant waits beside a noisy one, and how equally tenants share the slots.
func (b *Bench) fairness(ctx context.Context) error {
	byCount := Table{
		Title: fmt.Sprintf("wait of a quiet tenant's tasks (%s each, one every %s) beside a noisy tenant's queue",
			quietTask, quietEvery),
		Columns: []string{"noisy: queued", "noisy: length", "quiet p50, ms", "quiet p99, ms", "p99 ÷ noisy task"},
	}
	worst := 0.0
	for _, noisy := range []struct {
		tasks  int
		length time.Duration
	}{
		{0, noisyTask},
		{100, noisyTask},
		{1000, noisyTask},
		{20_000, noisyTask},
		{1000, 10 * time.Millisecond},
		{1000, 50 * time.Millisecond},
		{1000, 200 * time.Millisecond},
	} {
		b.Progress(fmt.Sprintf("fairness: %d tasks of %s queued", noisy.tasks, noisy.length))
		waits, err := b.quietWaits(ctx, noisy.tasks, noisy.length)
		if err != nil {
			return err
		}
		b.Add(fmt.Sprintf("wait beside %d × %s", noisy.tasks, noisy.length), "ms", waits...)
		p50, p99 := Quantile(waits, 0.5), Quantile(waits, 0.99)
		ratio := p99 / float64(noisy.length.Milliseconds())
		if noisy.length == noisyTask {
			worst = max(worst, ratio)
		}
		byCount.Rows = append(byCount.Rows, []string{
			strconv.Itoa(noisy.tasks), noisy.length.String(), fmt.Sprintf("%.1f", p50), fmt.Sprintf("%.1f", p99),
			fmt.Sprintf("%.2f", ratio),
		})
	}
	b.AtMost("N8", "quiet tenant's p99 wait ÷ length of the noisy tenant's tasks", worst, 2, "×")
	if err := b.equalShares(ctx); err != nil {
		return err
	}
	b.Tables = append([]Table{byCount}, b.Tables...)
	b.Note("%d slots; %d quiet tasks per row; tasks hold a slot without a sandbox", fairSlots, b.N)
	b.Summarise()
	return nil
}

// equalShares measures Jain's index of the slot-seconds that tenants with equal weights and different tasks get.
func (b *Bench) equalShares(ctx context.Context) error {
	table := Table{
		Title:   fmt.Sprintf("shares of tenants with tasks of 20 to 100 ms, all queued, in %s", jainTime),
		Columns: []string{"tenants", "Jain's index by seconds", "least ÷ mean", "most ÷ mean", "Jain's index by count"},
	}
	least := 1.0
	for _, n := range []int{2, 10, 50, 100} {
		b.Progress(fmt.Sprintf("fairness: %d tenants", n))
		seconds, counts, err := b.shares(ctx, n)
		if err != nil {
			return err
		}
		index := jain(seconds)
		least = min(least, index)
		average := mean(seconds)
		table.Rows = append(table.Rows, []string{
			strconv.Itoa(n), fmt.Sprintf("%.4f", index), fmt.Sprintf("%.2f", slices.Min(seconds)/average),
			fmt.Sprintf("%.2f", slices.Max(seconds)/average), fmt.Sprintf("%.4f", jain(counts)),
		})
	}
	b.AtLeast("N8j", "Jain's index by seconds with equal weights, the lowest of 2 to 100 tenants", 100*least, 95)
	b.Tables = append(b.Tables, table)
	return nil
}

// jain returns Jain's index of fairness: 1 if all values are equal, 1/n if all but one are zero.
func jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(values)) * squares)
}

// withQueue calls fn with a client of an empty queue, which has its own server.
func (b *Bench) withQueue(ctx context.Context, fn func(*jobs.Client) error) error {
	quiet := slog.New(slog.DiscardHandler)
	server, err := embedded.StartNATS(ctx, embedded.NATSOptions{Dir: b.NewDir(), Log: quiet})
	if err != nil {
		return err
	}
	defer server.Close()
	user := server.Fleet()
	q, err := jobs.Connect(ctx, jobs.Options{
		Server:      jobs.Server{URL: server.URL()},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password}, Log: quiet,
	})
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.Provision(ctx); err != nil {
		return err
	}
	return fn(q)
}

// holdSlots runs a worker whose tasks hold their slots, while fn runs. ended, if not nil, is called when a task ends.
func holdSlots(ctx context.Context, q *jobs.Client, ended func(fairTask), fn func() error) error {
	accept, stop := context.WithCancel(ctx)
	w := jobs.NewWorker(q, jobs.WorkerOptions{
		Slots: fairSlots, Handler: func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
			length, err := time.ParseDuration(j.Task.Code)
			if err != nil {
				return nil, jobs.Permanent(err)
			}
			select {
			case <-time.After(length):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if ended != nil {
				ended(fairTask{j.Record.Tenant, length})
			}
			return &schemas.Result{Status: schemas.Succeeded}, nil
		},
	})
	var worker errgroup.Group
	worker.Go(func() error { return w.Run(accept, accept) })
	err := fn()
	stop()
	return errors.Join(err, worker.Wait())
}

// submitFair submits a task in an event whose id is key, and returns the task's id.
func submitFair(ctx context.Context, q *jobs.Client, t fairTask, key string) (string, error) {
	ev := event.New()
	ev.SetID(key)
	ev.SetSource("codefleet/bench")
	ev.SetType(schemas.TypeTask)
	if err := ev.SetData(event.ApplicationJSON, []byte(fmt.Sprintf(`{"code":%q}`, t.length))); err != nil {
		return "", err
	}
	rec, err := q.SubmitNew(ctx, t.tenant, ev)
	return rec.TaskID, err
}

// submitMany submits tasks of several tenants.
func submitMany(ctx context.Context, q *jobs.Client, tasks []fairTask) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	for i, t := range tasks {
		g.Go(func() error {
			_, err := submitFair(ctx, q, t, strconv.Itoa(i))
			return err
		})
	}
	return g.Wait()
}

// quietWaits returns the waits of a quiet tenant's tasks, in milliseconds. Before them, it queues tasks of a noisy
// tenant: noisy is their number, and each takes length.
func (b *Bench) quietWaits(ctx context.Context, noisy int, length time.Duration) (waits []float64, err error) {
	err = b.withQueue(ctx, func(q *jobs.Client) error {
		if err := submitMany(ctx, q, slices.Repeat([]fairTask{{"noisy", length}}, noisy)); err != nil {
			return err
		}
		return holdSlots(ctx, q, nil, func() error {
			waits, err = b.submitQuietTasks(ctx, q)
			return err
		})
	})
	return waits, err
}

// submitQuietTasks submits the quiet tenant's tasks at intervals, and returns their waits in milliseconds.
func (b *Bench) submitQuietTasks(ctx context.Context, q *jobs.Client) ([]float64, error) {
	var mu sync.Mutex
	var waits []float64
	g, ctx := errgroup.WithContext(ctx)
	ticker := time.NewTicker(quietEvery)
	defer ticker.Stop()
	const warmup = 5 // tasks that are not measured
	for i := range b.N + warmup {
		<-ticker.C
		g.Go(func() error {
			submitted := time.Now()
			id, err := submitFair(ctx, q, fairTask{"quiet", quietTask}, strconv.Itoa(i))
			if err != nil {
				return err
			}
			rec, err := q.Wait(ctx, "quiet", id)
			if err == nil && i >= warmup {
				mu.Lock()
				waits = append(waits, float64(rec.StartedAt.Sub(submitted).Microseconds())/1000)
				mu.Unlock()
			}
			return err
		})
	}
	err := g.Wait()
	return waits, err
}

// shares returns how many slot-seconds and how many tasks each of n tenants gets while all of them have queued tasks.
func (b *Bench) shares(ctx context.Context, n int) (seconds, counts []float64, err error) {
	var tasks []fairTask
	index := map[string]int{}
	for i := range n {
		t := fairTask{tenantName(i), time.Duration(20+20*(i%5)) * time.Millisecond}
		index[t.tenant] = i
		needed := 2*fairSlots*jainTime/time.Duration(n)/t.length + 5
		tasks = append(tasks, slices.Repeat([]fairTask{t}, int(needed))...)
	}
	seconds, counts = make([]float64, n), make([]float64, n)
	var mu sync.Mutex
	open := true
	ended := func(t fairTask) {
		mu.Lock()
		defer mu.Unlock()
		if open {
			seconds[index[t.tenant]] += t.length.Seconds()
			counts[index[t.tenant]]++
		}
	}
	err = b.withQueue(ctx, func(q *jobs.Client) error {
		if err := submitMany(ctx, q, tasks); err != nil {
			return err
		}
		return holdSlots(ctx, q, ended, func() error {
			select {
			case <-time.After(jainTime):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			open = false
			return ctx.Err()
		})
	})
	return seconds, counts, err
}
