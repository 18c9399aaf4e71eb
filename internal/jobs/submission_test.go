package jobs

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
