package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/tools"
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
