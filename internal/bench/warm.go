package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/schemas"
)

const (
	// The program seed creates 1,000 files in a directory, and oneFile changes one of them. oneCall calls a tool.
	seededPaths = 1000 + 1
	seed        = "import os\nos.makedirs('data')\nfor n in range(1000):\n" +
		"    with open(f'data/{n:04}.txt', 'w') as f:\n        f.write(f'{n}\\n' * 50)\n"
	oneCall = "from servers.calculator import add\nprint(int(add(40, 2)))"
	oneFile = "n = inputs['n']\nwith open(f'data/{n % 1000:04}.txt', 'w') as f:\n    f.write(f'changed by {n}\\n" +
		"')\nprint(6*7)"
)

// warm measures single tasks as a caller sees them, in a fleet whose boxes are ready.
func (b *Bench) warm(ctx context.Context) (err error) {
	c, stop, err := b.StartClient(ctx, func(*config.Config) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.warmTask(ctx, c); err != nil {
		return err
	}
	if err := b.writingTask(ctx, c); err != nil {
		return err
	}
	return b.callingTask(ctx, c)
}

// warmTask measures a task without files beside Python alone.
func (b *Bench) warmTask(ctx context.Context, c *client.Client) error {
	task := Repeated("task", c, client.Task{Code: SmallestProgram})
	if err := b.SideBySide(ctx, Spaced(b.N), task, Timed("python -c", runPython)); err != nil {
		return err
	}
	b.AtMost("N1", "task ÷ python -c", b.Median("task")/b.Median("python -c"), 0.8, "×")
	return nil
}

// callingTask measures a task that calls one of the worker's own tools beside a task without a call.
func (b *Bench) callingTask(ctx context.Context, c *client.Client) error {
	calls := 0
	calling := ThroughFleet("task with a tool call", c, func() client.Submission {
		return client.Submission{Task: client.Task{Code: oneCall}}
	}, func(res client.Result) error {
		calls += len(res.Tools.Calls)
		return nil
	})
	silent := Repeated("task without one", c, client.Task{Code: SmallestProgram})
	if err := b.SideBySide(ctx, Spaced(b.N), calling, silent); err != nil {
		return err
	}
	if calls < b.N {
		return fmt.Errorf("%d tool calls were made, want at least %d", calls, b.N)
	}
	b.AtMost("N1t", "task with a tool call − task without one",
		b.Median("task with a tool call")-b.Median("task without one"), 2, "ms")
	return nil
}

// writingTask measures a task that changes one of 1,000 files beside Python alone.
func (b *Bench) writingTask(ctx context.Context, c *client.Client) error {
	const workspace = "files"
	res, err := RunTask(ctx, c, client.Submission{Task: client.Task{Code: seed}, Workspace: workspace}, "")
	if err != nil {
		return err
	}
	if got := len(res.Workspace.Changed); got != seededPaths {
		return fmt.Errorf("%d paths were committed, want %d", got, seededPaths)
	}
	n := 0
	task := ThroughFleet("writing task", c, func() client.Submission {
		n++
		inputs := json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))
		return client.Submission{Task: client.Task{Code: oneFile, Inputs: inputs}, Workspace: workspace}
	}, func(res client.Result) error {
		if len(res.Workspace.Changed) != 1 {
			return fmt.Errorf("the task changed %d files, want 1", len(res.Workspace.Changed))
		}
		return nil
	})
	if err := b.SideBySide(ctx, Spaced(b.N), task, Timed("python -c beside it", runPython)); err != nil {
		return err
	}
	b.AtMost("N1w", "writing task ÷ python -c", b.Median("writing task")/b.Median("python -c beside it"), 3, "×")
	return nil
}

// Repeated returns a series that runs the same task again and again.
func Repeated(name string, c *client.Client, task client.Task) Series {
	return ThroughFleet(name, c, func() client.Submission { return client.Submission{Task: task} },
		func(client.Result) error { return nil })
}

// ThroughFleet returns a series of tasks, from submission to result. next returns the next task, and check checks its
// result. The parts of a sample are the stages in the result, and the time outside of them.
func ThroughFleet(name string, c *client.Client, next func() client.Submission,
	check func(client.Result) error,
) Series {
	return Series{name, "ms", func(ctx context.Context) (Sample, error) {
		s := next()
		began := time.Now()
		res, err := RunTask(ctx, c, s, SmallestOutput)
		took := Since(began)
		if err != nil {
			return Sample{}, err
		}
		return Sample{took, stages(res.TimingMS, took)}, check(res)
	}}
}

// stages returns the parts of a task's time.
func stages(t schemas.Timing, took float64) map[string]float64 {
	return map[string]float64{
		"1 queued": t.Queued, "2 sandbox_wait": t.SandboxWait, "3 checkout": t.Checkout, "4 run": t.Run,
		"5 commit":           t.Commit,
		"6 rest of total":    t.Total - t.Queued - t.SandboxWait - t.Checkout - t.Run - t.Commit,
		"7 outside of total": took - t.Total,
	}
}

// overhead measures what the fleet adds to a program in a warm sandbox.
func (b *Bench) overhead(ctx context.Context) (err error) {
	c, stop, err := b.StartClient(ctx, func(*config.Config) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, stopPool, err := b.startPool(ctx, 1, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool()) }()
	box, err := pool.Acquire(ctx, executor.Key{Tenant: "bench"}, executor.Limits{}, nil)
	if err != nil {
		return err
	}
	defer box.Release()

	task := Repeated("task", c, client.Task{Code: SmallestProgram})
	direct := Timed("direct", func(ctx context.Context) error { return runDirect(ctx, box) })
	if err := b.SideBySide(ctx, Spaced(b.N), task, direct); err != nil {
		return err
	}
	b.AtMost("N2", "task − direct", b.Median("task")-b.Median("direct"), 3, "ms")
	return nil
}
