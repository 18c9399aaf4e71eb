package jobs

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBeginning(t *testing.T) {
	if got := beginning("Calculate 5 + 3"); got != "Calculate 5 + 3" {
		t.Errorf("beginning of a short sentence = %q, want it whole", got)
	}
	if got := beginning("x" + strings.Repeat("ü", 1000)); len(got) > 203 || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü…") {
		t.Errorf("beginning of a long sentence has %d bytes, valid %v: %q", len(got), utf8.ValidString(got), got)
	}
}
