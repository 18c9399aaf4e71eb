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

// hangingLedger is a ledger whose queue does not respond. It adds up the tokens that it is to count.
type hangingLedger struct{ tokens int }

func (*hangingLedger) Left(context.Context, string) (int, bool, error) { return 0, true, nil }

func (l *hangingLedger) Spend(ctx context.Context, _ string, tokens int) error {
	l.tokens += tokens
	<-ctx.Done()
	return ctx.Err()
}

// After a drain, tokens are counted only within the time that a run has for its commit, so that time is left to requeue
// the task.
func TestCountTokensEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger hangingLedger
		p := New(Parts{Codegen: Codegen{Ledger: &ledger}})
		ctx, drain := context.WithCancelCause(t.Context())
		drain(jobs.ErrDraining)
		began := time.Now()
		p.countTokens(ctx, task{job: &jobs.Job{}}, &schemas.Usage{}, codegen.Usage{PromptTokens: 1})
		if took := time.Since(began); took != jobs.FinishTime || ledger.tokens != 1 {
			t.Errorf("countTokens() counted %d tokens in %s after the drain, want 1 token in %s",
				ledger.tokens, took, jobs.FinishTime)
		}
	})
}
