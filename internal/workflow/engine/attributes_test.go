package engine_test

import (
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/workflow/engine"
)

// TestAttributes checks that expressions see the attributes that an event has, and no others: has(event.time) is false
// for an event without a time.
func TestAttributes(t *testing.T) {
	ev := event.New()
	ev.SetID("1")
	ev.SetSource("/s")
	ev.SetType("t")
	want := map[string]any{"id": "1", "source": "/s", "type": "t"}
	got, err := engine.Attributes(ev)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Attributes of an event without optional ones: %v (-want +got):\n%s", err, diff)
	}
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	ev.SetSubject("x")
	ev.SetTime(at)
	ev.SetExtension("more", "y")
	want["subject"], want["time"], want["more"] = "x", at, "y"
	got, err = engine.Attributes(ev)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Attributes: %v (-want +got):\n%s", err, diff)
	}
}
