package main

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
)

// TestArtifactsOfOneName checks that no artifact replaces another one that is downloaded with it, also with --force.
func TestArtifactsOfOneName(t *testing.T) {
	list := []client.Artifact{{Path: "a/x.png"}, {Path: "b/x.png"}, {Path: "b/y.png"}}
	_, err := chosenArtifacts(list, "id", nil)
	if err == nil || !strings.Contains(err.Error(), "would be saved as the same file") {
		t.Errorf("chosenArtifacts of all = %v, want an error about two artifacts in one file", err)
	}
	got, err := chosenArtifacts(list, "id", []string{"b/x.png", "b/y.png"})
	if err != nil || len(got) != 2 || got[0].Path != "b/x.png" || got[1].Path != "b/y.png" {
		t.Errorf("chosenArtifacts of two = %v, %v; want b/x.png and b/y.png", got, err)
	}
}
