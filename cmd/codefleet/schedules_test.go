package main

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestShownPrograms checks that the programs of schedules and triggers are shown as they are.
func TestShownPrograms(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	for _, args := range []string{
		"schedules add s @daily --code 1<2&3>0", "schedules show s",
		"triggers add t --type x --code 1<2&3>0", "triggers show t",
	} {
		code, out, errs := command(t, f, strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, `{"code":"1<2&3>0"}`) {
			t.Errorf("%s: exit code %d, %s%s, want 0 and the program", args, code, out, errs)
		}
	}
}
