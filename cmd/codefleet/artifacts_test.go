package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
)

// TestArtifactLine checks that a shell passes the path of the printed command on unchanged.
func TestArtifactLine(t *testing.T) {
	const all = "codefleet artifacts get x"
	for path, want := range map[string]string{
		"out/a.png": all + " out/a.png", "plot[1].png": all + " 'plot[1].png'", "{a,b}.png": all + " '{a,b}.png'",
		"it's $x": all + ` 'it'"'"'s $x'`, "-x.png": all, "a\tb": all, "a\u202eb": all,
	} {
		got := new(app).artifactLine("x", client.Artifact{Path: path})
		if !strings.HasSuffix(got, " (0 bytes): "+want) {
			t.Errorf("artifactLine(%q) = %q, want the command %q", path, got, want)
		}
	}
}

// TestChosenArtifacts checks that an artifact that is named twice is chosen once, in the order of the arguments.
func TestChosenArtifacts(t *testing.T) {
	list := []client.Artifact{{Path: "a.png"}, {Path: "b.png"}, {Path: "c.png"}}
	got, err := chosenArtifacts(list, "x", []string{"b.png", "a.png", "b.png"})
	want := []client.Artifact{{Path: "b.png"}, {Path: "a.png"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("chosenArtifacts(b, a, b) = %v (-want +got):\n%s", err, diff)
	}
}
