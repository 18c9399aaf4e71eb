package pipeline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/schemas"
)

// TestSessionView checks that a view has as many tasks as fit, also if the session's checkpoint is deep.
func TestSessionView(t *testing.T) {
	deep := strings.Repeat("[", 490) + strings.Repeat("1,", 7000) + "1" + strings.Repeat("]", 490)
	for name, c := range map[string]struct {
		code, checkpoint string
		wantOmitted      bool
	}{
		"small": {"1", "1", false},
		"deep":  {"1", deep, false},
		"long":  {strings.Repeat("x", 20_000), "1", true},
	} {
		log := schemas.Session{
			SessionID: "s", Tasks: make([]schemas.SessionTask, 100),
			Checkpoint: &schemas.Checkpoint{Data: map[string]json.RawMessage{"at": json.RawMessage(c.checkpoint)}},
		}
		for i := range log.Tasks {
			log.Tasks[i].Code = c.code
		}
		view, err := sessionView(log)
		if err != nil || len(view) > maxSessionView {
			t.Fatalf("%s: a view of %d bytes (%v), want at most %d", name, len(view), err, maxSessionView)
		}
		var got schemas.Session
		if err := json.Unmarshal(view, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Tasks)+got.TasksOmitted != 100 || len(got.Tasks) < 2 || got.TasksOmitted > 0 != c.wantOmitted {
			t.Errorf("%s: %d tasks and %d left out, want some of 100, and some left out: %v",
				name, len(got.Tasks), got.TasksOmitted, c.wantOmitted)
		}
	}
}
