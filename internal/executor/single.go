package executor

import (
	"context"
	"log/slog"
)

// A Single is one box with its runner, without a pool: for probes, benchmarks and the tests of drivers.
// It runs one program at a time.
type Single struct {
	runner   *runnerProcess
	driver   Driver
	preload  []string
	template *template
}

// NewSingle creates a box and starts the runner in it. A Spec without Env gets the runner's.
func NewSingle(ctx context.Context, driver Driver, spec Spec) (*Single, error) {
	return newSingle(ctx, driver, spec, nil, &template{})
}

// NewPreloaded is NewSingle with modules that are imported before programs start. If dir is not empty, and
// the driver's boxes are Snapshotters, it takes a snapshot in dir, which must not exist. Another then
// restores it.
func NewPreloaded(ctx context.Context, driver Driver, spec Spec, preload []string, dir string) (*Single, error) {
	t := &template{}
	t.snapshot.dir, t.snapshot.log = dir, slog.New(slog.DiscardHandler)
	return newSingle(ctx, driver, spec, preload, t)
}

// Another creates a box of the same driver as a pool creates all but its first: with the compiled runner,
// or from the snapshot.
func (s *Single) Another(ctx context.Context, spec Spec) (*Single, error) {
	return newSingle(ctx, s.driver, spec, s.preload, s.template)
}

func newSingle(ctx context.Context, driver Driver, spec Spec, preload []string, template *template) (*Single, error) {
	if spec.Env == nil {
		spec.Env = runnerEnv()
	}
	box, err := driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	r, err := startRunner(ctx, box, preload, template)
	if err != nil {
		return nil, err
	}
	return &Single{runner: r, driver: driver, preload: preload, template: template}, nil
}

// Run runs a program. After an error, and after a verdict that is Dirty, the box is gone.
func (s *Single) Run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	return s.runner.run(ctx, p, hooks)
}

// Alive reports whether the box can run another program.
func (s *Single) Alive() bool { return s.runner.alive() }

// Restored reports whether the box was restored from a snapshot.
func (s *Single) Restored() bool { return s.runner.restored() }

// Python is the version of the interpreter in the box.
func (s *Single) Python() string { return s.runner.python }

// Close destroys the box. It may be called again.
func (s *Single) Close(ctx context.Context) error { return s.runner.close(ctx) }
