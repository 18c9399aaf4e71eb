package ingesttest_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestPythonClient runs the tests of the Python client against a fleet.
func TestPythonClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const dir = "../../../clients/python"
	// Reading the files tells the go command to repeat the test when they change.
	for _, name := range []string{
		"codefleet.py", "test_codefleet.py", "code_execution_mcp/config.py", "code_execution_mcp/fleet.py",
	} {
		if _, err := os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := ingesttest.Start(t, 2, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*ingesttest.WaitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", "-W", "error", "-m", "unittest", "-v", "test_codefleet")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "CODEFLEET_FLEET=", "CODEFLEET_URL="+f.URL, "CODEFLEET_TOKEN="+ingesttest.Token,
		"CODEFLEET_DATA="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("run the Python tests = %v, want nil\n%s", err, out)
	}
	t.Logf("%s", out)
}
