package executor

import (
	"context"
	"errors"
)

// MaxResultBytes bounds the structured result of a program, as JSON.
const MaxResultBytes = 960 << 10

// runnerEnv is the environment that a box must be created with (Spec.Env).
func runnerEnv() []string {
	return []string{
		"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp",
		"PYTHONHASHSEED=0", "PYTHONUTF8=1", "PYTHONDONTWRITEBYTECODE=1", "MALLOC_ARENA_MAX=2",
	}
}

// A runner is the Python process inside one box, ready for one program at a time.
type runner struct {
	done chan struct{} // closed when the runner has ended
}

// startRunner starts the runner in the box and returns when it has a child waiting for a program.
// preload names modules that each program finds imported already. After an error the box is
// destroyed.
func startRunner(ctx context.Context, box Box, preload []string) (*runner, error) {
	return nil, errors.New("not yet")
}

// run runs one program. After an error, and after a verdict that is Dirty, the box is destroyed.
func (r *runner) run(ctx context.Context, p Program, hooks Hooks) (Verdict, error) {
	return Verdict{}, errors.New("not yet")
}

// alive reports whether the runner can take a program, now or as soon as it has cleaned up.
func (r *runner) alive() bool { return false }

// close destroys the box and waits until nothing of the runner is left. It may be called again.
func (r *runner) close(ctx context.Context) error { return nil }
