package ingesttest_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/schemas"
)

// These tests run the examples of producers in other languages and libraries against a real queue.

// build builds an example, and returns the path of its binary.
func build(t *testing.T, name string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../../examples/producers/"+name).
		CombinedOutput(); err != nil {
		t.Fatalf("build %s = %v, want nil\n%s", name, err, out)
	}
	return bin
}

func run(t *testing.T, env []string, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*ingesttest.WaitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run %s = %v, want nil\n%s", name, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func checkResult(t *testing.T, text string) {
	t.Helper()
	var r schemas.Result
	if err := schemas.Decode(schemas.ResultV1, []byte(text), &r); err != nil {
		t.Fatalf("Decode = %v, want nil: %s", err, text)
	}
	if r.Status != schemas.Succeeded || r.Output != "42\n" {
		t.Errorf("result = %s with output %q, want succeeded with 42", r.Status, r.Output)
	}
}

func TestCloudEvents(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	url := strings.Replace(f.NATS.URL(), "nats://", "nats://"+ingesttest.NATSUser+":"+ingesttest.NATSPassword+"@", 1)
	lines := run(t, nil, build(t, "cloudevents"), "-url", url, "-code", "print 42")
	result, ok := strings.CutPrefix(lines[len(lines)-1], schemas.TypeResult+": ")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `stored: {"stream":"TASKS"`) || !ok {
		t.Fatalf("output = %q, want an acknowledgement and a result", lines)
	}
	checkResult(t, result)
}

func TestByHand(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	addr := strings.TrimPrefix(f.NATS.URL(), "nats://")
	lines := run(t, nil, build(t, "byhand"), "-addr", addr, "-user", ingesttest.NATSUser, "-password",
		ingesttest.NATSPassword, "-code", "print 42")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"stream":"TASKS"`) {
		t.Fatalf("output = %q, want an acknowledgement and a result", lines)
	}
	checkResult(t, lines[1])
}

func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	f := ingesttest.Start(t, 1, nil)
	lines := run(t, []string{"CODEFLEET_URL=" + f.URL, "CODEFLEET_TOKEN=" + ingesttest.Token, `CODE=print "4\2"`},
		"../../../examples/producers/curl.sh")
	responses := 0
	for _, line := range lines {
		var r schemas.Record
		switch {
		case strings.HasPrefix(line, "{"):
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Result == nil || r.Result.Output != `"4\2"`+"\n" {
				t.Errorf("decode response %s = %v, want the output \"4\\2\"", line, err)
			}
			responses++
		case strings.HasPrefix(line, "["):
			if !strings.HasPrefix(line, `[{"status":202,"record":{`) {
				t.Errorf("response to the batch = %s, want accepted records", line)
			}
			responses++
		}
	}
	if responses != 4 {
		t.Errorf("%d responses in %q, want 4", responses, lines)
	}
}
