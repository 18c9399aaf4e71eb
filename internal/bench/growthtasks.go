package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/schemas"
)

// queuedRate measures how many tasks per second a fleet runs if all are queued at once. The yardstick is the rate of
// closed callers, as in the scenario throughput: each submits a task when it has the result of the one before. The
// report says where a slot's time goes.
func (b *Bench) queuedRate(ctx context.Context) (err error) {
	const turns = 3
	slots, tasks, calls := 0, min(b.N*queuedStep, mostQueued), min(b.N*queuedStep, burst)
	f, stop, err := b.StartFleet(ctx, func(c *config.Config) { slots = c.Slots() }, process.RunWorker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
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
	var times []map[string]float64
	queued := Series{"queued tasks", "tasks/s", func(ctx context.Context) (Sample, error) {
		ids, err := submitAll(ctx, q, tasks, tenantOf(f))
		if err != nil {
			return Sample{}, err
		}
		all, err := awaitAll(ctx, q, ids, tenantOf(f))
		if err != nil {
			return Sample{}, err
		}
		rate := endRate(all)
		times = append(times, slotTimes(all, float64(slots)*1000/rate))
		return Sample{Value: rate}, nil
	}}
	closed := Rate("closed callers", 2*slots, calls,
		func(ctx context.Context, _ int) error { return runSmallest(ctx, c) })
	if err := b.SideBySide(ctx, Plan{Samples: turns, PerTurn: 1}, queued, closed); err != nil {
		return err
	}
	ratio := b.Median("queued tasks") / b.Median("closed callers")
	b.AtLeast("G10", "queued tasks ÷ closed callers (as N3)", 100*ratio, 90)
	b.Tables = append(b.Tables, slotTable(times))
	b.Note("G10: %d tasks per sample, %d slots", tasks, slots)
	return nil
}

// slotParts are the parts of the time that a task takes of its slot, in order.
var slotParts = []string{
	"sandbox wait", "checkout", "run", "commit", "claim, and write of the program to the record",
	"final record, acknowledgement, next message",
}

// slotTimes returns, for each of slotParts, the mean time in milliseconds that the tasks spent in it. slot is the mean
// time for which a task used its slot.
func slotTimes(all []schemas.Record, slot float64) map[string]float64 {
	parts := map[string]float64{}
	for _, r := range all {
		t := r.Result.TimingMS
		known := t.SandboxWait + t.Checkout + t.Run + t.Commit
		for part, ms := range map[string]float64{
			slotParts[0]: t.SandboxWait, slotParts[1]: t.Checkout, slotParts[2]: t.Run, slotParts[3]: t.Commit,
			slotParts[4]: t.Total - t.Queued - known, slotParts[5]: slot - (t.Total - t.Queued),
		} {
			parts[part] += ms / float64(len(all))
		}
	}
	return parts
}

// slotTable returns a table with the means of several samples. It skips the first one, because SideBySide drops the
// first turn.
func slotTable(samples []map[string]float64) Table {
	t := Table{Title: "a slot's time for each queued task", Columns: []string{"part", "ms per task"}}
	total := 0.0
	for _, part := range slotParts {
		ms := 0.0
		for _, s := range samples[1:] {
			ms += s[part] / float64(len(samples)-1)
		}
		total += ms
		t.Rows = append(t.Rows, []string{part, fmt.Sprintf("%.2f", ms)})
	}
	t.Rows = append(t.Rows, []string{"total: slots ÷ rate", fmt.Sprintf("%.2f", total)})
	return t
}

// eachTenant measures one task of each of many tenants. Each of them needs a new box, because boxes are not shared.
func (b *Bench) eachTenant(ctx context.Context) (err error) {
	tasks, slots := min(b.N*tenantStep, mostTenants), 0
	f, stop, err := b.StartFleet(ctx, func(c *config.Config) {
		slots = c.Slots()
		c.Tenants = map[string]config.Tenant{}
		for i := range tasks {
			c.Tenants[tenantName(i)] = config.Tenant{}
		}
	}, runSharedWorker)
	if err != nil {
		return err
	}
	q, err := fleetQueue(ctx, f)
	if err != nil {
		return errors.Join(err, stop())
	}
	b.Progress(fmt.Sprintf("growth-queue: %d tenants", tasks))
	start := time.Now()
	ids, err := submitAll(ctx, q, tasks, tenantName)
	if err == nil {
		b.Add("submission by many tenants", "tasks/s", float64(tasks)/time.Since(start).Seconds())
		_, err = awaitAll(ctx, q, ids, tenantName)
	}
	took := time.Since(start).Seconds()
	q.Close()
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	b.AtMost("G11", fmt.Sprintf("%d tenants with one task each", tasks), took, 60, "s")
	return b.newBoxes(ctx, slots, min(tasks, burst))
}

// newBoxes measures the same tasks without a queue and workspaces: a pool alone, with a new box for each program.
func (b *Bench) newBoxes(ctx context.Context, slots, programs int) (err error) {
	pool, stop, err := b.startPool(ctx, readyBoxes, slots+readyBoxes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b.Progress("growth-queue: a pool with a new sandbox for each program")
	var n atomic.Int64
	alone := Rate("pool alone, another tenant each time", slots, programs, func(ctx context.Context, _ int) error {
		tenant := "t" + strconv.FormatInt(n.Add(1), 10)
		box, err := pool.Acquire(ctx, executor.Key{Tenant: tenant}, executor.Limits{}, nil)
		if err != nil {
			return err
		}
		defer box.Release()
		return runDirect(ctx, box)
	})
	sample, err := alone.Measure(ctx)
	if err == nil {
		b.addSample(alone, sample)
	}
	return err
}

// manyFiles compares a task that changes nothing in a workspace of many files with the same task in an empty one.
func (b *Bench) manyFiles(ctx context.Context) (err error) {
	const samples = 50
	files := min(b.N*fileStep, mostFiles)
	c, stop, err := b.StartClient(ctx, func(*config.Config) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	create := fmt.Sprintf("import os\nfor n in range(%d):\n    os.makedirs(f'd{n%%100:02}', exist_ok=True)\n"+
		"    with open(f'd{n%%100:02}/{n}', 'w') as f:\n        f.write(f'{n}')\n", files)
	first := client.Submission{Task: client.Task{Code: create}, Workspace: "many"}
	if _, err := RunTask(ctx, c, first, ""); err != nil {
		return err
	}
	in := func(name, workspace string) Series {
		return ThroughFleet(name, c, func() client.Submission {
			return client.Submission{Task: client.Task{Code: SmallestProgram}, Workspace: workspace}
		}, func(res client.Result) error {
			if n := len(res.Workspace.Changed); n > 0 {
				return fmt.Errorf("the task changed %d files, want none", n)
			}
			return nil
		})
	}
	large, empty := in("in a large workspace", "many"), in("in an empty one", "empty")
	if err := b.SideBySide(ctx, Spaced(min(samples, b.N)), large, empty); err != nil {
		return err
	}
	b.AtMost("G12", fmt.Sprintf("task that changes nothing in %d files − in an empty workspace", files),
		b.Median("in a large workspace")-b.Median("in an empty one"), 1, "ms")
	return nil
}
