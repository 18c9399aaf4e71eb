package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/codegen"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// hangingObjects is an object store that does not respond.
type hangingObjects struct{ objects.Objects }

func (hangingObjects) Get(ctx context.Context, _ string, _ objects.GetOptions) (objects.Object, error) {
	<-ctx.Done()
	return objects.Object{}, ctx.Err()
}

// A drained run does not wait for its prefetched HEAD, although the prefetch goes on until stop: the wait would leave
// no time to requeue the task.
func TestPrefetchEndsWithTheRun(t *testing.T) {
	store := state.New(hangingObjects{}, state.Options{CacheDir: t.TempDir()})
	head, stop := prefetch(t.Context(), store, state.Ref{Tenant: "default", Workspace: "w"})
	defer stop()
	run, drain := context.WithCancel(t.Context())
	drain()
	if got := head(run); got != nil {
		t.Errorf("head() = %v, want nil", got)
	}
}

// hangingLedger is a ledger whose queue does not respond.
type hangingLedger struct{}

func (hangingLedger) Left(context.Context, string) (int, bool, error) { return 0, true, nil }

func (hangingLedger) Spend(ctx context.Context, _ string, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// After a drain, tokens are counted only within the time that a run has for its commit, so that time is left to requeue
// the task.
func TestCountTokensEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Parts{Codegen: Codegen{Ledger: hangingLedger{}}})
		ctx, drain := context.WithCancelCause(t.Context())
		drain(jobs.ErrDraining)
		began := time.Now()
		p.countTokens(ctx, task{job: &jobs.Job{}}, &schemas.Usage{}, codegen.Usage{PromptTokens: 1})
		if took := time.Since(began); took > jobs.FinishTime {
			t.Errorf("countTokens() took %s after the drain, want at most %s", took, jobs.FinishTime)
		}
	})
}
