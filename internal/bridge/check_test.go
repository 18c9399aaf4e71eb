package bridge_test

import (
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

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
