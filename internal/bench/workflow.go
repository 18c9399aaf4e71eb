package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// What the scenario workflow measures. The targets are for 100 samples.
const (
	runSteps         = 10  // steps of a run, and tasks that are compared with them
	waitingPerSample = 10  // runs that wait, for each sample
	storedPerSample  = 100 // runs that have ended, for each sample
	reads            = 100 // at most: answers, requests for the list, and requests for a run
)

// workflow measures how much longer a step takes than its task, and what waiting and ended runs cost.
func (b *Bench) workflow(ctx context.Context) error {
	if err := b.withQueue(ctx, func(q *jobs.Client) error { return b.bareStepCost(ctx, q) }); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *up.Fleet) error{b.stepCost, b.waitingRuns, b.storedRuns} {
		err := b.withFleet(ctx, func(*config.Config) {}, func(f *up.Fleet) error { return measure(ctx, f) })
		if err != nil {
			return err
		}
	}
	b.Summarise()
	return nil
}

// stepCost measures the steps of a run, one after the other, beside tasks that a caller submits one after the other.
func (b *Bench) stepCost(ctx context.Context, f *up.Fleet) error {
	q, err := fleetQueue(ctx, f)
	if err != nil {
		return err
	}
	defer q.Close()
	c, err := tenantClient(ctx, f, f.File.Tenant)
	if err != nil {
		return err
	}
	defer c.Close()
	steps, err := newStepRuns(ctx, q)
	if err != nil {
		return err
	}
	step := perStep("step", func(ctx context.Context) error { return steps.run(ctx, f.File.Tenant) })
	task := perStep("task", func(ctx context.Context) error {
		for range runSteps {
			s := client.Submission{Task: client.Task{Code: SmallestProgram}}
			if _, err := RunTask(ctx, c, s, SmallestOutput); err != nil {
				return err
			}
		}
		return nil
	})
	if err := b.SideBySide(ctx, Plan{Samples: b.N, PerTurn: 1}, step, task); err != nil {
		return err
	}
	b.AtMost("W1", "step − task", b.Median("step")-b.Median("task"), 3, "ms")
	return nil
}

// perStep returns a series of a call's times in milliseconds, divided by runSteps, the number of steps or tasks that
// the call runs.
func perStep(name string, call func(context.Context) error) Series {
	return Series{name, "ms", func(ctx context.Context) (Sample, error) {
		began := time.Now()
		err := call(ctx)
		return Sample{Value: Since(began) / runSteps}, err
	}}
}

// bareStepCost is stepCost with tasks that do nothing and need no sandbox. In a sandbox, the runner forks the next
// process after a task, which hides a part of the time that the engine takes between two tasks.
func (b *Bench) bareStepCost(ctx context.Context, q *jobs.Client) error {
	const tenant = "bench"
	steps, err := newStepRuns(ctx, q)
	if err != nil {
		return err
	}
	w := jobs.NewWorker(q, jobs.WorkerOptions{
		Slots: fairSlots, Hooks: jobs.Hooks{Ended: steps.runs.TaskEnded},
		Handler: func(context.Context, *jobs.Job) (*schemas.Result, error) {
			return &schemas.Result{Status: schemas.Succeeded}, nil
		},
	})
	accept, stop := context.WithCancel(ctx)
	var worker errgroup.Group
	worker.Go(func() error { return w.Run(accept, accept) })
	key := 0
	step := perStep("step that does nothing", func(ctx context.Context) error { return steps.run(ctx, tenant) })
	task := perStep("task that does nothing", func(ctx context.Context) error {
		for range runSteps {
			key++
			id, err := submitFair(ctx, q, fairTask{tenant, 0}, strconv.Itoa(key))
			if err == nil {
				_, err = q.Wait(ctx, tenant, id)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	err = b.SideBySide(ctx, Plan{Samples: b.N, PerTurn: 1}, step, task)
	stop()
	if err = errors.Join(err, worker.Wait()); err != nil {
		return err
	}
	b.AtMost("W1q", "step − task, both without a program", b.Median(step.Name)-b.Median(task.Name), 3, "ms")
	return nil
}

// stepRuns starts runs of a workflow with runSteps steps, each of which needs the one before it.
type stepRuns struct {
	definition json.RawMessage
	runs       *engine.Engine
	store      *jobs.Workflows
}

func newStepRuns(ctx context.Context, q *jobs.Client) (c stepRuns, err error) {
	w := schemas.Workflow{Name: "steps"}
	for i := range runSteps {
		w.Steps = append(w.Steps, schemas.Step{ID: "s" + strconv.Itoa(i), Code: SmallestProgram})
	}
	if c.definition, err = json.Marshal(w); err != nil {
		return c, err
	}
	c.runs = engine.New(q, slog.New(slog.DiscardHandler))
	c.store, err = q.Workflows(ctx)
	return c, err
}

// run runs the workflow, and returns an error unless the run succeeds. It notices the end up to lookEvery late.
func (c stepRuns) run(ctx context.Context, tenant string) error {
	const lookEvery = 2 * time.Millisecond
	run, err := c.runs.Start(ctx, tenant, schemas.WorkflowRequest{Workflow: c.definition})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for !run.Status.Ended() {
		<-ticker.C
		data, _, err := c.store.Get(ctx, tenant, run.RunID)
		if err != nil {
			return err
		}
		run = schemas.WorkflowRun{}
		if err := json.Unmarshal(data, &run); err != nil {
			return err
		}
	}
	if run.Status != schemas.WorkflowSucceeded {
		return fmt.Errorf("run %s is %s: %w", run.RunID, run.Status, run.Error)
	}
	return nil
}

// waitingRuns measures what runs that wait for an answer cost.
func (b *Bench) waitingRuns(ctx context.Context, f *up.Fleet) error {
	const asks = `{"name": "asks", "steps": [{"id": "ask", "ask": {"message": "May I?", "form": {
		"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}}}]}`
	c, err := httpClient(ctx, f)
	if err != nil {
		return err
	}
	defer c.Close()
	// What the process allocates only once, for its first run, is not measured.
	if _, err := b.startRuns(ctx, c, asks, 1); err != nil {
		return err
	}
	before, runs := liveHeap(), b.N*waitingPerSample
	ids, err := b.startRuns(ctx, c, asks, runs)
	if err != nil {
		return err
	}
	b.AtMost("W2", fmt.Sprintf("memory of `up` for %d runs that wait", runs), (liveHeap()-before)/(1<<20), 20, "MB")
	busy, err := busySlots(ctx, c)
	if err != nil {
		return err
	}
	b.AtMost("W3", "slots and boxes that these runs hold", float64(busy), 0, "")
	yes := client.WorkflowAnswer{Step: "ask", Values: json.RawMessage(`{"ok": true}`)}
	for _, id := range ids[:min(reads, len(ids))] {
		start := time.Now()
		run, err := c.AnswerWorkflow(ctx, id, yes)
		if err != nil {
			return err
		}
		if run.Status != schemas.WorkflowSucceeded {
			return fmt.Errorf("run %s is %s after its answer", id, run.Status)
		}
		b.Add("answer", "ms", Since(start))
	}
	return nil
}

// startRuns starts n runs of a workflow, several at a time, and returns their ids.
func (b *Bench) startRuns(ctx context.Context, c *client.Client, definition string, n int) ([]string, error) {
	ids := make([]string, n)
	var mu sync.Mutex
	started := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	for i := range ids {
		g.Go(func() error {
			run, err := c.RunWorkflow(ctx, client.WorkflowRequest{Workflow: json.RawMessage(definition)})
			if err != nil {
				return err
			}
			ids[i] = run.RunID
			mu.Lock()
			defer mu.Unlock()
			if started++; started%100 == 0 {
				b.Progress(fmt.Sprintf("workflow: run %d of %d", started, n))
			}
			return nil
		})
	}
	return ids, g.Wait()
}

// liveHeap returns the bytes of this process's heap that are in use after a garbage collection.
func liveHeap() float64 {
	var m runtime.MemStats
	for range 2 { // the first collection runs finalizers, and the second one frees their objects
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// busySlots returns how many slots and boxes the fleet's workers use. It waits until each of them has published its
// presence after the call.
func busySlots(ctx context.Context, c *client.Client) (busy int, err error) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		f, err := c.Fleet(ctx)
		if err != nil {
			return 0, err
		}
		busy, current := 0, len(f.Workers) > 0
		for _, w := range f.Workers {
			busy += w.Busy + w.Boxes["acquired"]
			current = current && w.Seen.After(asked)
		}
		if current {
			return busy, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for the presence of the workers: %w", context.Cause(ctx))
		}
	}
}

// storedRuns measures requests for the list of runs and for one run, while many runs that have ended are stored.
func (b *Bench) storedRuns(ctx context.Context, f *up.Fleet) error {
	const ends = `{"name": "ends", "steps": [{"id": "a", "when": "false", "code": "print(1)"}]}`
	c, err := httpClient(ctx, f)
	if err != nil {
		return err
	}
	defer c.Close()
	runs, start := b.N*storedPerSample, time.Now()
	ids, err := b.startRuns(ctx, c, ends, runs)
	if err != nil {
		return err
	}
	b.Add("runs without a task", "runs/s", float64(runs)/time.Since(start).Seconds())
	list := Timed("list of 100 runs", func(ctx context.Context) error {
		found, err := c.WorkflowRuns(ctx, 100)
		if err == nil && len(found) != min(runs, 100) {
			err = fmt.Errorf("the list has %d runs", len(found))
		}
		return err
	})
	next := 0
	one := Timed("status of a run", func(ctx context.Context) error {
		run, err := c.WorkflowRun(ctx, ids[next%len(ids)])
		if next += 7; err == nil && run.Status != schemas.WorkflowSucceeded {
			err = fmt.Errorf("run %s is %s", run.RunID, run.Status)
		}
		return err
	})
	if err := b.SideBySide(ctx, Plan{Samples: min(reads, b.N), PerTurn: 1}, list, one); err != nil {
		return err
	}
	b.AtMost("W4", fmt.Sprintf("list of the latest 100 of %d runs", runs), b.Median(list.Name), 200, "ms")
	b.AtMost("W5", fmt.Sprintf("status of one of %d runs", runs), b.Median(one.Name), 10, "ms")
	return nil
}
