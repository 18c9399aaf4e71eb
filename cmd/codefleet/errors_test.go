package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/schemas"
)

// TestErrorKeepsItsCode checks that -o json prints the code of a refusal that a command explains in its own words.
func TestErrorKeepsItsCode(t *testing.T) {
	for want, err := range map[string]error{
		errcode.Conflict: explainConflict(
			&client.APIError{Status: http.StatusConflict, Code: errcode.Conflict, Paths: []string{"a"}}),
		errcode.UnexpectedResponse: &client.APIError{Code: errcode.UnexpectedResponse, Message: "the response is 404"},
		errcode.UnknownTask:        &client.APIError{Status: http.StatusNotFound, Code: errcode.UnknownTask},
	} {
		var stderr bytes.Buffer
		(&app{output: "json", stderr: &stderr}).report(err)
		var out errorOutput
		if err := json.Unmarshal(stderr.Bytes(), &out); err != nil || out.Error.Code != want {
			t.Errorf("report printed %s (%v), want the code %s", &stderr, err, want)
		}
	}
}

// TestOldServerResponds checks that a server that is too old does not count as a fleet that must be started.
func TestOldServerResponds(t *testing.T) {
	for want, err := range map[errorDetails]error{
		{
			Message: "find a fleet: " + jobs.ErrServerTooOld.Error(), ExitCode: errcode.ExitUnreachable,
			Hint: "upgrade the server to " + jobs.MinServer + " or newer",
		}: jobs.ErrServerTooOld,
		{
			Message: "find a fleet: no response", Code: errcode.Unavailable, ExitCode: errcode.ExitUnreachable,
			Hint: "start one with `codefleet up`, or name one with --fleet FILE or CODEFLEET_URL and CODEFLEET_TOKEN",
		}: errors.New("no response"),
	} {
		var stderr bytes.Buffer
		(&app{output: "json", stderr: &stderr}).report(noFleet(err))
		var out errorOutput
		if err := json.Unmarshal(stderr.Bytes(), &out); err != nil || out.Error != want {
			t.Errorf("report printed %s (%v), want %+v", &stderr, err, want)
		}
	}
}

// TestHTTPOnlyHint checks that the hint for a command that the queue does not serve names a variable.
func TestHTTPOnlyHint(t *testing.T) {
	f := explain(&client.APIError{
		Status: http.StatusNotImplemented, Code: errcode.HTTPOnly, Hint: "create the client with the http:// address",
	})
	if f.hint != useHTTP {
		t.Errorf("hint %q, want %q", f.hint, useHTTP)
	}
}

// TestErrorsAdviseFlags checks that the advice for a task's error names flags, not fields of the task.
func TestErrorsAdviseFlags(t *testing.T) {
	for code, want := range map[string]string{
		errcode.MemoryLimit: "try: codefleet run --memory MB", errcode.Timeout: "(codefleet run --timeout DURATION)",
	} {
		var stderr bytes.Buffer
		(&app{stderr: &stderr}).showError(client.Result{Error: &schemas.Error{
			Code: code, Hint: "ask for more in limits.memory_mb or limits.timeout_s",
		}})
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("error %s: %s, want %q", code, &stderr, want)
		}
	}
}

// TestJSONIsReadable checks that JSON for people does not escape the characters that only HTML needs escaped.
func TestJSONIsReadable(t *testing.T) {
	var stdout bytes.Buffer
	a := &app{output: "json", stdout: &stdout}
	if err := a.print(map[string]any{"code": "a<b && c>d", "raw": json.RawMessage(`"\u003c&>"`)}, nil); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"code\": \"a<b && c>d\",\n  \"raw\": \"<&>\"\n}\n"; stdout.String() != want {
		t.Errorf("print() wrote %s, want %s", &stdout, want)
	}
}

// TestApproveAllListsTheTools checks that approve --all prints what it has approved.
func TestApproveAllListsTheTools(t *testing.T) {
	listing := &tools.Listing{Tools: []tools.Tool{{Server: "wiki", Name: "read", State: tools.Pending}}}
	var stdout bytes.Buffer
	err := (&app{output: "text", stdout: &stdout}).approve(t.TempDir(), listing, nil, true)
	if err != nil || !strings.HasPrefix(stdout.String(), "wiki/read (pending → approved)\n") {
		t.Errorf("approve --all = %v and printed %q, want the tool", err, &stdout)
	}
}

// TestApprovesOnlyWhatIsSaved checks that nothing is said to be approved if the approval cannot be saved.
func TestApprovesOnlyWhatIsSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("absent", dir); err != nil {
		t.Fatal(err)
	}
	listing := &tools.Listing{Tools: []tools.Tool{{Server: "wiki", Name: "read", State: tools.Pending}}}
	var stdout bytes.Buffer
	err := (&app{output: "text", stdout: &stdout}).approve(dir, listing, nil, true)
	if err == nil || stdout.Len() > 0 {
		t.Errorf("approve = %v and printed %q, want an error only", err, &stdout)
	}
}

func TestDirectoryOf(t *testing.T) {
	for arg, want := range map[string]string{
		"": "", ".": "", "./": "", "/": "", "src": "src", "./src/": "src", "src//a": "src/a", ".git": ".git",
		"..": "..",
	} {
		if got := directoryOf(arg); got != want {
			t.Errorf("directoryOf(%q) = %q, want %q", arg, got, want)
		}
	}
}
