package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
)

// TestChosenArtifacts checks that an artifact that is named twice is chosen once.
func TestChosenArtifacts(t *testing.T) {
	list := []client.Artifact{{Path: "a.png"}, {Path: "b.png"}, {Path: "c.png"}}
	got, err := chosenArtifacts(list, "x", []string{"b.png", "a.png", "b.png"})
	if diff := cmp.Diff(list[:2], got); err != nil || diff != "" {
		t.Errorf("chosenArtifacts(b, a, b) = %v (-want +got):\n%s", err, diff)
	}
}
