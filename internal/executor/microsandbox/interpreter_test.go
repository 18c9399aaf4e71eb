package microsandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// TestInterpreter checks that the Python of an image is described once, and the box that describes it is removed.
func TestInterpreter(t *testing.T) {
	home := ""
	d := fake(t, func(o *microsandbox.Options) { home = o.Dir })
	for range 2 {
		got, err := d.Interpreter(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if got.Version != "3.12.1" || got.Platforms[0] != "manylinux_2_28_x86_64" {
			t.Errorf("Interpreter = %+v, want 3.12.1 for manylinux_2_28_x86_64", got)
		}
		if err := os.RemoveAll(filepath.Join(home, "fake")); err != nil { // so that no further box can be created
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "fake"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Interpreter(t.Context(), "no/such:image"); executor.ReasonOf(err) != executor.ReasonImageMissing {
		t.Errorf("Interpreter of a missing image = %v; want image_missing", err)
	}
	if _, err := d.Interpreter(t.Context(), "python:large"); executor.ReasonOf(err) != executor.ReasonImageTooLarge {
		t.Errorf("Interpreter of an image of 10 GB = %v; want image_too_large", err)
	}
}

func TestParsePython(t *testing.T) {
	for output, want := range map[string]executor.Python{
		`{"version": "3.11.2", "machine": "x86_64", "library": "glibc", "library_version": "2.12"}`: {
			Version: "3.11.2",
			Platforms: []string{
				"manylinux_2_12_x86_64", "manylinux2010_x86_64", "manylinux_2_11_x86_64", "manylinux_2_10_x86_64",
				"manylinux_2_9_x86_64", "manylinux_2_8_x86_64", "manylinux_2_7_x86_64", "manylinux_2_6_x86_64",
				"manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64",
			},
		},
		`{"version": "3.12.1", "machine": "aarch64", "library": "", "library_version": ""}`: {
			Version:   "3.12.1",
			Platforms: []string{"musllinux_1_2_aarch64", "musllinux_1_1_aarch64", "linux_aarch64"},
		},
	} {
		got, err := microsandbox.ParsePython(output)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParsePython(%s) = %v, want nil; result (-want +got):\n%s", output, err, diff)
		}
	}
	for _, output := range []string{"", "python 3", "{}", `{"version": 3}`} {
		if got, err := microsandbox.ParsePython(output); err == nil {
			t.Errorf("ParsePython(%q) = %v; want an error", output, got)
		}
	}
}

// TestPrepared checks that the output of the first box of an image is validated.
func TestPrepared(t *testing.T) {
	got, err := microsandbox.Prepared(`{"python": [3, 9, 2], "protected": ["/var/tmp", "/run/a b"]}`)
	if got != `["/var/tmp", "/run/a b"]` || err != nil {
		t.Errorf("Prepared = %s, %v; want /var/tmp and \"/run/a b\"", got, err)
	}
	for out, want := range map[string]executor.Reason{
		"":                   executor.ReasonImageNoPython,
		"Python 3.12":        executor.ReasonImageNoPython,
		`{"python": [3, 9]}`: executor.ReasonImageNoPython,
		`{"python": [3, 8, 20], "protected": []}`:                                     executor.ReasonImageNoPython,
		`{"python": [2, 7, 18], "protected": []}`:                                     executor.ReasonImageNoPython,
		`{"python": [3, 12, 1], "protected": ["` + strings.Repeat("x", 1<<16) + `"]}`: executor.ReasonImageBroken,
	} {
		if got, err := microsandbox.Prepared(out); executor.ReasonOf(err) != want {
			t.Errorf("Prepared(%.50q) = %q, %v, want %s", out, got, err, want)
		}
	}
}

func TestRealInterpreter(t *testing.T) {
	got, err := newReal(t).Interpreter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.Version, "3.11.") || got.Platforms[0] != "manylinux_2_36_x86_64" { // Debian 12
		t.Errorf("Interpreter = %+v, want 3.11 for manylinux_2_36_x86_64", got)
	}
}
