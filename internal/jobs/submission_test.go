package jobs

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

func TestRecordDescription(t *testing.T) {
	describe := func(text string) string {
		s := submission{task: schemas.Task{Description: text}}
		return s.record(t.Context(), 1, time.Now()).Description
	}
	if got := describe("Calculate 5 + 3"); got != "Calculate 5 + 3" {
		t.Errorf("description of a short sentence = %q, want all of it", got)
	}
	s := submission{task: schemas.Task{Code: "import json\n\nprint(json.dumps(inputs))\n"}}
	if got := s.record(t.Context(), 1, time.Now()).Description; got != "print(json.dumps(inputs))" {
		t.Errorf("description of a program = %q, want its first statement", got)
	}
	got := describe("x" + strings.Repeat("ü", 1000))
	if len(got) > maxSummary || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü…") {
		t.Errorf("description of a long sentence is %d bytes, valid %v: %q; want it truncated",
			len(got), utf8.ValidString(got), got)
	}
}

// TestCheckThatPanics checks that an event is refused, and does not stop the process, if its check panics.
func TestCheckThatPanics(t *testing.T) {
	f := newFleet(t)
	ev := taskEvent("1", `{"code":"x"}`)
	s := submission{lane: lane{pool: "default", priority: "normal", tenant: "acme"}, event: ev, data: ev.Data()}
	refused, err := f.checkMessage(t.Context(), &s, func(string) (TenantPolicy, bool) { panic("a bug") })
	if err != nil || refused == nil || refused.Code != errcode.BadEvent {
		t.Fatalf("checkMessage = %v, %v, want the event refused", refused, err)
	}
	if want := TaskID("acme", ev.Source(), "1"); s.id != want {
		t.Errorf("the task's id is %q, want %s", s.id, want)
	}
}
