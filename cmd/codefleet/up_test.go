package main

import (
	"strings"
	"testing"
	"time"
)

// `codefleet up` says that the weather is made up, and does not say so of real weather.
func TestUpNamesTheSample(t *testing.T) {
	for provider, want := range map[string]bool{"sample": true, "open-meteo": false} {
		var out strings.Builder
		showAddresses(&out, addresses{Weather: provider}, time.Second)
		if got := strings.Contains(out.String(), "weather\tsample (made up; "); got != want {
			t.Errorf("showAddresses() with %s = %q, says sample %v, want %v", provider, out.String(), got, want)
		}
	}
}
