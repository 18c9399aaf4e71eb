package executor

import "context"

// A Single is one box with its runner, outside of any pool: for probes, benchmarks and the tests of
// drivers. It runs one program at a time.
type Single struct {
	runner *runner
	driver Driver
	memo   *compiled
}

// NewSingle makes a box and starts the runner in it. A Spec without Env gets the runner's.
func NewSingle(ctx context.Context, driver Driver, spec Spec) (*Single, error) {
	return newSingle(ctx, driver, spec, &compiled{})
}

// Another makes a box of the same driver as a pool makes all but its first: the runner is compiled
// already.
func (s *Single) Another(ctx context.Context, spec Spec) (*Single, error) {
	return newSingle(ctx, s.driver, spec, s.memo)
}

func newSingle(ctx context.Context, driver Driver, spec Spec, memo *compiled) (*Single, error) {
	if spec.Env == nil {
		spec.Env = runnerEnv()
	}
	box, err := driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	r, err := startRunner(ctx, box, nil, memo)
	if err != nil {
		return nil, err
	}
	return &Single{runner: r, driver: driver, memo: memo}, nil
}

// Run runs a program. After an error, and after a verdict that is Dirty, the box is gone.
func (s *Single) Run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	return s.runner.run(ctx, p, hooks)
}

// Alive reports whether the box can take another program.
func (s *Single) Alive() bool { return s.runner.alive() }

// Python is the version of the interpreter in the box.
func (s *Single) Python() string { return s.runner.python }

// Close destroys the box. It may be called again.
func (s *Single) Close(ctx context.Context) error { return s.runner.close(ctx) }
