package main

import (
	"io"
	"os"
	"testing"
)

// TestOriginOfTheDataDirectory checks that a problem with a fleet's data directory names what selects the fleet.
func TestOriginOfTheDataDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("f.json", []byte(`{"data":"/srv/fleet"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flag := range map[string]string{"--fleet f.json": "f.json", "CODEFLEET_FLEET": ""} {
		a := &app{fleet: flag, env: []string{"HOME=/home", "CODEFLEET_FLEET=f.json"}, stderr: io.Discard}
		c, err := a.loadTools()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Origin("data").Where; c.Data != "/srv/fleet" || got != want {
			t.Errorf("data directory %q from %q, want /srv/fleet from %q", c.Data, got, want)
		}
	}
}
