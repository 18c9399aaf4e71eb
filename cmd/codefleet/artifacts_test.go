package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
)

// TestChosenArtifacts checks that an artifact that is named twice is chosen once, in the order of the arguments.
func TestChosenArtifacts(t *testing.T) {
	list := []client.Artifact{{Path: "a.png"}, {Path: "b.png"}, {Path: "c.png"}}
	got, err := chosenArtifacts(list, "x", []string{"b.png", "a.png", "b.png"})
	want := []client.Artifact{{Path: "b.png"}, {Path: "a.png"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("chosenArtifacts(b, a, b) = %v (-want +got):\n%s", err, diff)
	}
}
