package sandbox

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/executor/microsandbox"
)

// Choose falls back to gVisor if msb does not work, returns the reason, and respects execution.sandbox_type.
func TestChoose(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "msb")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, crashing := script("echo msb 0.3.1"), script("kill -SEGV $$")
	noKVM := script(`[ "$1" = --version ] && echo msb ` + microsandbox.Version +
		` || { echo "error: CPU virtualization is not available" >&2; exit 1; }`)
	runsc := script("echo runsc version release-20990101.0")
	for name, test := range map[string]struct {
		kind, msb string
		tier      string          // "" if an error is wanted
		reason    executor.Reason // why microsandbox was rejected, or the reason of the error
	}{
		"no msb":                    {"auto", "", "gvisor", ""},
		"configured msb is missing": {"auto", "/no/such/msb", "gvisor", executor.ReasonEngineMissing},
		"msb is too old":            {"auto", old, "gvisor", executor.ReasonEngineOld},
		"msb crashes":               {"auto", crashing, "gvisor", executor.ReasonEngineCrashed},
		"no virtualisation":         {"auto", noKVM, "gvisor", executor.ReasonNoVirtualisation},
		"gvisor is required":        {"gvisor", noKVM, "gvisor", ""},
		"required msb crashes":      {"microsandbox", crashing, "", executor.ReasonEngineCrashed},
		"required msb is missing":   {"microsandbox", "", "", executor.ReasonEngineMissing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/usr/bin:/bin") // without msb
			c := config.Default()
			c.Execution.SandboxType, c.Execution.Msb, c.Execution.Runsc = test.kind, test.msb, runsc
			got, err := Choose(t.Context(), c, t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler))
			if test.tier == "" {
				if executor.ReasonOf(err) != test.reason {
					t.Fatalf("Choose = %v, want %s", err, test.reason)
				}
				return
			}
			if err != nil || got.Info.Tier != test.tier || executor.ReasonOf(got.Rejected) != test.reason {
				t.Fatalf("Choose = tier %s, rejected %v, %v; want %s, %s", got.Info.Tier, got.Rejected, err,
					test.tier, test.reason)
			}
			if err := got.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestChooseWithoutEngines(t *testing.T) {
	c := config.Default()
	c.Execution.Msb, c.Execution.Runsc = "/no/such/msb", "/no/such/runsc"
	_, err := Choose(t.Context(), c, t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler))
	for _, want := range []string{"execution.msb: ", "execution.runsc: ", "/no/such/runsc"} {
		if executor.ReasonOf(err) != executor.ReasonEngineMissing || !strings.Contains(err.Error(), want) {
			t.Errorf("Choose = %v, want %s with %q", err, executor.ReasonEngineMissing, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	c.Execution.Msb, c.Execution.Runsc = "", ""
	_, err = Choose(t.Context(), c, t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "neither beside this binary nor on PATH") ||
		!strings.Contains(err.Error(), "make build") {
		t.Errorf("Choose = %v, want the fix make build", err)
	}
}

// The JSON schema of tasks repeats the table of drivers.
func TestSchemaListsTiers(t *testing.T) {
	schema, err := os.ReadFile("../../../schemas/task.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var task struct {
		Properties struct {
			MinTier struct {
				Enum []string `json:"enum"`
			} `json:"min_tier"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(schema, &task); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(drivers.Tiers(), task.Properties.MinTier.Enum); diff != "" {
		t.Errorf("min_tier of task.v1.json (-want +got):\n%s", diff)
	}
}
