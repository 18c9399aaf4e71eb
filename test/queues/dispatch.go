package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/bench"
)

const (
	slots     = 8               // tasks that a worker runs at once, in each queue
	producers = 32              // callers that submit at once, when throughput is measured
	drained   = 5000            // tasks with which throughput is measured
	steady    = 5 * time.Second // how long tasks arrive at each rate, in each round
)

var rates = []int{50, 200, 500} // tasks per second

// A queue is one system, with one worker in this process.
type queue interface {
	// submit returns when the task is durable.
	submit(ctx context.Context, task int) error
	close() error
}

// A system starts its server and a worker, which calls run for each task.
type system struct {
	name  string
	start func(ctx context.Context, dir string, run func(task int)) (queue, error)
}

// dispatch measures N7: how long a task waits from its submission to the start of its run, at steady rates, and how
// many tasks per second a queue accepts and starts.
func dispatch(ctx context.Context, b *bench.Bench, s servers) error {
	systems := []system{
		{"codefleet", startFleet}, {"asyncjobs", startAsyncjobs}, {"River", s.startRiver}, {"Asynq", s.startAsynq},
	}
	var available []system
	for _, sys := range systems {
		if reason := s.missing(sys.name); reason != "" {
			b.Note("%s was not measured: %s", sys.name, reason)
			continue
		}
		available = append(available, sys)
	}
	for round := range b.N {
		first := round % len(available) // each round begins with another system
		for _, sys := range slices.Concat(available[first:], available[:first]) {
			b.Progress(fmt.Sprintf("dispatch: round %d of %d: %s", round+1, b.N, sys.name))
			if err := measure(ctx, b, sys); err != nil {
				return fmt.Errorf("%s: %w", sys.name, err)
			}
		}
	}
	b.Summarise()
	report(b, available)
	return nil
}

func waitSeries(name string, rate int) string { return fmt.Sprintf("%s: wait at %d/s", name, rate) }

func rateSeries(name string) string { return name + ": throughput" }

// measure starts a system with an empty store, and takes its samples of one round.
func measure(ctx context.Context, b *bench.Bench, sys system) (err error) {
	var l ledger
	q, err := sys.start(ctx, b.NewDir(), l.started)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := q.close(); err == nil {
			err = closeErr
		}
	}()
	if err := l.submitAll(ctx, q, 200, 1); err != nil { // connections, caches and the first tasks are not measured
		return err
	}
	for _, rate := range rates {
		waits, err := l.atRate(ctx, q, rate)
		if err != nil {
			return err
		}
		b.Add(waitSeries(sys.name, rate), "ms", waits...)
	}
	begin := time.Now()
	if err := l.submitAll(ctx, q, drained, producers); err != nil {
		return err
	}
	b.Add(rateSeries(sys.name), "tasks/s", drained/time.Since(begin).Seconds())
	return nil
}

// A ledger notes when tasks started. A task's number is unique within a ledger.
type ledger struct {
	mu      sync.Mutex
	begun   map[int]time.Time
	waiting map[int]chan struct{}
	last    int
}

// started is called by a worker when it runs a task.
func (l *ledger) started(task int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	done, ok := l.waiting[task]
	if !ok {
		return // a second delivery
	}
	delete(l.waiting, task)
	l.begun[task] = now
	close(done)
}

// add returns a new task, and a channel that is closed when it starts.
func (l *ledger) add() (int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun == nil {
		l.begun, l.waiting = map[int]time.Time{}, map[int]chan struct{}{}
	}
	l.last++
	started := make(chan struct{})
	l.waiting[l.last] = started
	return l.last, started
}

// run submits a task, waits until it starts, and returns the time between.
func (l *ledger) run(ctx context.Context, q queue) (time.Duration, error) {
	task, started := l.add()
	submitted := time.Now()
	if err := q.submit(ctx, task); err != nil {
		return 0, err
	}
	select {
	case <-started:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun[task].Sub(submitted), nil
}

// submitAll submits n tasks by several callers at once, and returns when all tasks have started. A caller submits the
// next task without waiting for the start of the one before.
func (l *ledger) submitAll(ctx context.Context, q queue, n, callers int) error {
	submit, submitCtx := errgroup.WithContext(ctx)
	submit.SetLimit(callers)
	var started []<-chan struct{}
	for range n {
		task, begun := l.add()
		started = append(started, begun)
		submit.Go(func() error { return q.submit(submitCtx, task) })
	}
	if err := submit.Wait(); err != nil {
		return err
	}
	for _, begun := range started {
		select {
		case <-begun:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// atRate submits tasks at a steady rate, whether or not earlier ones have started, and returns their waits in
// milliseconds.
func (l *ledger) atRate(ctx context.Context, q queue, rate int) ([]float64, error) {
	n := int(steady.Seconds()) * rate
	waits := make([]float64, n)
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	tasks, ctx := errgroup.WithContext(ctx)
	for i := range n {
		<-ticker.C
		tasks.Go(func() error {
			wait, err := l.run(ctx, q)
			waits[i] = float64(wait.Microseconds()) / 1000
			return err
		})
	}
	err := tasks.Wait()
	return waits, err
}

// report computes N7 and the table.
func report(b *bench.Bench, systems []system) {
	t := bench.Table{
		Title:   fmt.Sprintf("no-op tasks, %d slots, each acknowledged write on disk", slots),
		Columns: []string{"queue"},
	}
	for _, rate := range rates {
		t.Columns = append(t.Columns, fmt.Sprintf("%d/s: p50, ms", rate), "p99, ms")
	}
	t.Columns = append(t.Columns, "tasks/s", "min–max")
	for _, sys := range systems {
		row := []string{sys.name}
		for _, rate := range rates {
			waits := b.Yardsticks[waitSeries(sys.name, rate)]
			row = append(row, fmt.Sprintf("%.1f", waits.P50), fmt.Sprintf("%.1f", waits.P99))
		}
		throughput := b.Samples[rateSeries(sys.name)]
		row = append(row, fmt.Sprintf("%.0f", b.Median(rateSeries(sys.name))),
			fmt.Sprintf("%.0f–%.0f", slices.Min(throughput), slices.Max(throughput)))
		t.Rows = append(t.Rows, row)
	}
	b.Tables = append(b.Tables, t)
	own, others := systems[0].name, systems[1:]
	for _, rate := range rates {
		best := math.Inf(1)
		for _, sys := range others {
			best = min(best, b.Yardsticks[waitSeries(sys.name, rate)].P99)
		}
		b.AtMost(fmt.Sprintf("N7 at %3d/s", rate), "p99 from submission to start ÷ the best other queue",
			b.Yardsticks[waitSeries(own, rate)].P99/best, 1, "×")
	}
	b.AtLeast("N7t", "tasks per second ÷ asyncjobs, the other queue on JetStream",
		100*b.Median(rateSeries(own))/b.Median(rateSeries("asyncjobs")), 100)
}
