package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// A Single is one box with its runner and without a pool, for checks, benchmarks and driver tests. It runs one
// program at a time.
type Single struct {
	runner   *runnerProcess
	driver   Driver
	preload  []string
	template *boxTemplate
	views    *views
	dir      string    // the workspace
	reset    time.Time // when the workspace was reset, see resetWorkspace
}

// NewSingle creates a box and starts the runner in it. If spec.Env is nil, the runner's default is used.
func NewSingle(ctx context.Context, driver Driver, spec Spec) (*Single, error) {
	return newSingle(ctx, driver, spec, nil, &boxTemplate{})
}

// NewPreloaded is like NewSingle, but imports modules before programs start. If dir is not "" and the
// driver's boxes are Snapshotters, it also takes a snapshot in dir, a directory that must not exist yet, and
// Another restores boxes from it.
func NewPreloaded(ctx context.Context, driver Driver, spec Spec, preload []string, dir string) (*Single, error) {
	t := &boxTemplate{}
	t.snapshot.dir, t.snapshot.log = dir, slog.New(slog.DiscardHandler)
	return newSingle(ctx, driver, spec, preload, t)
}

// Another creates another box with the same driver, the way a pool creates its later boxes: with the
// runner's bytecode, which the first box has sent, or from the snapshot.
func (s *Single) Another(ctx context.Context, spec Spec) (*Single, error) {
	return newSingle(ctx, s.driver, spec, s.preload, s.template)
}

func newSingle(
	ctx context.Context, driver Driver, spec Spec, preload []string, template *boxTemplate,
) (*Single, error) {
	if spec.Env == nil {
		spec.Env = runner.Env()
	}
	views, err := mountViews(&spec)
	if err != nil {
		return nil, err
	}
	box, err := driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	r, err := startRunner(ctx, box, preload, template)
	if err != nil {
		return nil, err
	}
	return &Single{
		runner: r, driver: driver, preload: preload, template: template, views: views, dir: spec.Workspace,
	}, nil
}

// Run runs a program. After a Dirty verdict, or an error of the execution, the box is destroyed: see Alive.
func (s *Single) Run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	if err := s.views.show(p.Catalogue); err != nil {
		return Verdict{}, err
	}
	verdict, err := s.runner.run(ctx, p, hooks)
	if err == nil && !verdict.Dirty && s.runner.awaitChecked(context.WithoutCancel(ctx)) != nil {
		verdict.Dirty = true
		_ = s.runner.kill() // Close returns its error
	}
	var failed error
	s.reset, failed = resetWorkspace(s.runner.box, s.dir, s.reset)
	return verdict, errors.Join(err, failed)
}

// Alive reports whether the box can run another program.
func (s *Single) Alive() bool { return s.runner.alive() }

// Restored reports whether the box was restored from a snapshot.
func (s *Single) Restored() bool { return s.runner.restored() }

// Python returns the version of the interpreter in the box.
func (s *Single) Python() string { return s.runner.python }

// Close destroys the box. It may be called again, even after an error.
func (s *Single) Close(ctx context.Context) error { return s.runner.close(ctx) }
