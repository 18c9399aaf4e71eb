package bridge_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
)

// TestIntegrationConformance runs the protocol's conformance suite against a bridge: all server scenarios of two
// revisions, and the scenarios of the tasks extension. The suite cannot send a token, so authentication is off. It
// expects tools that a fleet does not have; the fixtures add them.
func TestIntegrationConformance(t *testing.T) {
	npm := os.Getenv("CODEFLEET_TEST_NPM")
	if npm == "" {
		if os.Getenv("CODEFLEET_TEST_NO_SKIP") != "" {
			t.Fatal("CODEFLEET_TEST_NPM does not name the directory of the suite: make test-integration")
		}
		t.Skip("needs the conformance suite from npm: make test-integration")
	}
	f := ingesttest.Start(t, 2, func(o *ingest.Options, _ *jobs.Options) { o.Access.Tokens = nil })
	url := serveFixtures(t, f)
	bin := filepath.Join(npm, "node_modules/.bin")
	suite := func(args ...string) string {
		t.Helper()
		args = append([]string{filepath.Join(bin, "conformance"), "server", "--url", url}, args...)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("conformance %v = %v, want nil\n%s", args, err, out)
		}
		return string(out)
	}
	// The bridge does not announce changes of prompts, so the suite skips its check of the announcement.
	for revision, want := range map[string]string{
		"2025-11-25": "84 passed, 0 failed", "2026-07-28": "152 passed, 0 failed",
	} {
		if out := suite("--suite", "all", "--spec-version", revision); !strings.Contains(out, want) {
			t.Errorf("revision %s: output does not contain %q:\n%s", revision, want, out)
		}
	}
	for scenario, want := range map[string]string{
		"lifecycle": "9/9", "capability-negotiation": "5/5", "wire-fields": "4/4", "request-state-removal": "3/3",
		"mrtr-input": "4/4", "request-headers": "5/5", "dispatch-and-envelope": "9/9", "status-notifications": "0/0",
		"required-task-error": "3/3", "mrtr-composition": "2/2",
	} {
		if out := suite("--scenario", "tasks-"+scenario); !strings.Contains(out, "Passed: "+want+", 0 failed") {
			t.Errorf("tasks-%s: output does not contain %q:\n%s", scenario, want, out)
		}
	}
}

// serveFixtures serves a bridge that has the fixtures, and returns its address.
func serveFixtures(t *testing.T, f *ingesttest.Fleet) string {
	t.Helper()
	b := bridge.New(bridge.Options{Fleet: client.Options{URL: f.URL}})
	b.Extend(fixtureOptions, addFixtures)
	return listen(t, b, "127.0.0.1:0") + bridge.PathMCP
}
