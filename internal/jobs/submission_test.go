package jobs

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

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

// TestTimesThatJSONLacks checks that an event is refused whose times are outside of the years 0 to 9999 in UTC: its
// record could not be stored.
func TestTimesThatJSONLacks(t *testing.T) {
	f := newFleet(t)
	for _, at := range []string{"0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"} {
		for where, ev := range map[string]event.Event{
			"expirytime":  taskEvent("1", `{"code":"x"}`, "expirytime", at),
			"/not_before": taskEvent("1", `{"code":"x","not_before":"`+at+`"}`),
		} {
			_, err := f.Submit(t.Context(), "acme", ev)
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Path != where {
				t.Errorf("Submit with %s %s = %v, want it refused", where, at, err)
			}
		}
	}
}
