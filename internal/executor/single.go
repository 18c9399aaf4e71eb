package executor

import (
	"context"
	"log/slog"
)

// A Single is one box with its runner, outside of any pool: for probes, benchmarks and the tests of
// drivers. It runs one program at a time.
type Single struct {
	runner   *runner
	driver   Driver
	preload  []string
	template *template
}

// NewSingle makes a box and starts the runner in it. A Spec without Env gets the runner's.
func NewSingle(ctx context.Context, driver Driver, spec Spec) (*Single, error) {
	return newSingle(ctx, driver, spec, nil, &template{})
}

// NewPreloaded is NewSingle with modules that programs find imported. Its state is saved in dir, which is
// not there yet, and Another restores it, where the driver can. Empty: it is not saved.
func NewPreloaded(ctx context.Context, driver Driver, spec Spec, preload []string, dir string) (*Single, error) {
	t := &template{}
	t.snapshot.dir, t.snapshot.log = dir, slog.New(slog.DiscardHandler)
	return newSingle(ctx, driver, spec, preload, t)
}

// Another makes a box of the same driver as a pool makes all but its first: the runner is compiled
// already.
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

// Alive reports whether the box can take another program.
func (s *Single) Alive() bool { return s.runner.alive() }

// Restored reports whether the box was not booted.
func (s *Single) Restored() bool { return s.runner.from == restored }

// Python is the version of the interpreter in the box.
func (s *Single) Python() string { return s.runner.python }

// Close destroys the box. It may be called again.
func (s *Single) Close(ctx context.Context) error { return s.runner.close(ctx) }
