package hostdir_test

import (
	"os"
	"testing"

	"github.com/codefleet/codefleet/internal/executor/hostdir"
)

// TestFindImage checks how names of images are understood in a directory with the files "python:3", "codefleet" and
// "a.tar".
func TestFindImage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"python:3", "codefleet", "a.tar"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"python:3":        "file",
		"a.tar":           "file",
		"./codefleet":     "file",
		"python:4":        "reference",
		"team/env:1":      "reference",
		"codefleet/env:1": "reference", // although codefleet is not a directory
		"b.tar":           "error",
		"./b":             "error",
		"/no/such/image":  "error",
		"codefleet/a.tar": "error",
	} {
		got := "file"
		info, isReference, err := hostdir.FindImage(name)
		switch {
		case err != nil:
			got = "error"
		case isReference:
			got = "reference"
		case info == nil:
			got = "nothing"
		}
		if got != want {
			t.Errorf("FindImage(%q) = %v, %t, %v, want a %s", name, info, isReference, err, want)
		}
	}
}

// TestImageName checks that only names of files lose their directories.
func TestImageName(t *testing.T) {
	for name, want := range map[string]string{
		"/srv/secret/image.tar": "image.tar", "./dir": "dir", "secret/image.tar": "image.tar",
		"docker.io/library/python:3.12-slim": "docker.io/library/python:3.12-slim",
	} {
		if got := hostdir.ImageName(name); got != want {
			t.Errorf("ImageName(%q) = %q, want %q", name, got, want)
		}
	}
}
