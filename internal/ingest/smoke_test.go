package ingest

import (
	"testing"

	"github.com/codefleet/codefleet/schemas"
)

// TestLateSmoke checks what is said about a smoke run that has not ended in time.
func TestLateSmoke(t *testing.T) {
	for _, c := range []struct {
		status      schemas.Status
		why         schemas.Why
		cause, hint string
	}{
		{
			schemas.Running,
			schemas.Why{Rule: schemas.WhyRunning, Message: "run 1 has begun"},
			"it was running after 1m0s", "pass inputs with which the program ends soon",
		},
		{
			schemas.Running,
			schemas.Why{Rule: schemas.WhyApproval, Message: "a call of crm/drop waits for approval"},
			"it was running after 1m0s, because a call of crm/drop waits for approval",
			"save the skill again, and have the call approved meanwhile, or pass inputs with which it is not made",
		},
		{
			schemas.Queued,
			schemas.Why{Rule: schemas.WhyPaused, Message: "the fleet is paused"},
			"it was queued after 1m0s, because the fleet is paused", "save the skill again when tasks no longer wait",
		},
	} {
		cause, hint := lateCause(c.status, c.why), lateHint(c.why.Rule)
		if cause != c.cause || hint != c.hint {
			t.Errorf("%s: cause %q and hint %q, want %q and %q", c.why.Rule, cause, hint, c.cause, c.hint)
		}
	}
}
