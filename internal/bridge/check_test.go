package bridge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestCheckInterrupted checks that tools are not said to have failed because the caller has ended the check.
func TestCheckInterrupted(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var got []bridge.CheckResult
	err := bridge.Check(ctx, options(f, ingesttest.Token), nil, func(c bridge.CheckResult) {
		got = append(got, c)
		cancel(enough)
	})
	if !errors.Is(err, enough) || len(got) != 1 || got[0].Message != "6*7 = null" { // the worker runs no Python
		t.Errorf("Check = %+v, %v, want the first result and %v", got, err, enough)
	}
}

// TestCheckQueued checks that Check names the task that no worker takes, and does not judge a value that it lacks.
func TestCheckQueued(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := options(f, ingesttest.Token)
	o.Wait = time.Millisecond
	var got []bridge.CheckResult
	err := bridge.Check(t.Context(), o, []string{"execute_task"}, func(c bridge.CheckResult) { got = append(got, c) })
	if err != nil || len(got) != 1 {
		t.Fatalf("Check = %d results, %v, want one, nil", len(got), err)
	}
	const want = "the task is still queued: no worker has taken it"
	if c := got[0]; c.OK || c.Message != want || len(c.TaskID) != 26 {
		t.Errorf("Check = %+v, want the message %q and the task's id", c, want)
	}
}
