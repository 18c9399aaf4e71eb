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

// A drain ends the context of a run, but not the one in which the HEAD is prefetched, which lasts until stop. A
// checkout that waits for the HEAD all the same leaves no time to requeue the task.
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

// The tokens of a drained run are counted in the time in which it may finish a commit, so that its task can be requeued
// after that.
func TestChargeEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Parts{Codegen: Codegen{Ledger: hangingLedger{}}})
		ctx, drain := context.WithCancelCause(t.Context())
		drain(jobs.ErrDraining)
		began := time.Now()
		p.charge(ctx, task{job: &jobs.Job{}}, &schemas.Usage{}, codegen.Usage{PromptTokens: 1})
		if took := time.Since(began); took > jobs.SettleTime {
			t.Errorf("charge() took %s after the drain, want at most %s", took, jobs.SettleTime)
		}
	})
}
