package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

func TestAgentSetsDefaultsOfTasks(t *testing.T) {
	var got client.Submission
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		respond(w, 200, record(client.Succeeded))
	}))
	defer srv.Close()
	a, err := client.NewAgent(t.Context(), client.AgentOptions{
		Options: client.Options{URL: srv.URL}, Workspace: "lab", Session: "s-1", Priority: "low", Model: "small",
		Tools: []string{"calculator/*"}, Limits: client.Limits{TimeoutS: 5}, Labels: map[string]string{"k": "v"},
		Pool: "big", Network: []string{"example.org"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	result, output, err := a.ExecuteTask(t.Context(), "Calculate 5 + 3")
	if err != nil || output != "42\n" || result.Status != client.Succeeded {
		t.Fatalf("ExecuteTask = %+v, %q, %v; want succeeded with the output 42", result, output, err)
	}
	got.IdempotencyKey = ""
	want := client.Submission{
		Task: client.Task{
			Description: "Calculate 5 + 3", Model: "small", Tools: &client.ToolChoice{Allow: []string{"calculator/*"}},
			Limits: &client.Limits{TimeoutS: 5}, Labels: map[string]string{"k": "v"}, Pool: "big",
			Network: &client.Network{Allow: []string{"example.org"}},
		},
		Workspace: "lab", Session: "s-1", Priority: "low", Source: "codefleet/client",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("submission (-want +got):\n%s", diff)
	}
}

// TestCopyDirectory checks that an agent copies the files of a directory, and no symbolic links.
func TestCopyDirectory(t *testing.T) {
	got := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got[r.Method+" "+r.URL.Path] = string(body)
		_, _ = io.WriteString(w, `{"generation": 1}`)
	}))
	defer srv.Close()
	dir := filepath.Join(t.TempDir(), "data")
	for name, text := range map[string]string{"a.csv": "1,2", "deep/b.txt": "b"} {
		file := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	a, err := client.NewAgent(t.Context(), client.AgentOptions{Options: client.Options{URL: srv.URL}, Workspace: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.CopyDirectory(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"PUT /v1/workspaces/lab/files/data/a.csv":      "1,2",
		"PUT /v1/workspaces/lab/files/data/deep/b.txt": "b",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	if err := a.CopyDirectory(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("CopyDirectory of no directory = %v, want ErrNotExist", err)
	}
}

// TestSettingsThatStartNoFleet checks the errors of an agent's own fleet. The Go example 09 starts one.
func TestSettingsThatStartNoFleet(t *testing.T) {
	settings := map[string]string{"execution.state.state_file": "s.json", "limits.timeout": "much"}
	_, err := client.NewAgent(t.Context(), client.AgentOptions{
		Options: client.Options{URL: "http://127.0.0.1:1"}, Settings: settings,
	})
	if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("Settings of a running fleet = %v, want an error", err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	program := filepath.Join(dir, "program")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, c := range []struct{ name, script, want string }{
		{"no program", "", "set CODEFLEET_BIN"},
		{
			"refused", `echo "log" >&2; env >&2
				echo '{"error": {"code": "usage", "message": "limits.timeout: not a duration"}}' >&2; exit 2`,
			"start a fleet with these settings: limits.timeout: not a duration",
		},
		{
			"crash", "env | grep ^CODEFLEET_EXECUTION_STATE_STATE_FILE= >&2",
			": CODEFLEET_EXECUTION_STATE_STATE_FILE=s.json",
		},
		{"cancelled", "exec cat", "context canceled"},
	} {
		t.Setenv("CODEFLEET_BIN", program)
		if c.script != "" {
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if c.name == "cancelled" {
			cancel()
		}
		_, err := client.NewAgent(ctx, client.AgentOptions{Settings: settings})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: NewAgent() = %v, want an error with %q", c.name, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "codefleet-*")); len(left) > 0 {
			t.Errorf("%s: left %v, want nothing", c.name, left)
		}
	}
}

func TestExecuteTaskReturnsTaskError(t *testing.T) {
	failed := record(client.Failed)
	failed.Result.Error = &schemas.Error{Code: "program_error", Message: "ZeroDivisionError: division by zero", Line: 3}
	srv := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { respond(w, 200, failed) }))
	defer srv.Close()
	t.Setenv("CODEFLEET_FLEET", "")
	t.Setenv("CODEFLEET_URL", srv.URL)
	result, output, err := client.ExecuteTask(t.Context(), "divide by zero")
	e, ok := errors.AsType[*client.TaskError](err)
	if !ok || e.Status != client.Failed || e.Detail.Line != 3 || e.TaskID != taskID {
		t.Fatalf("ExecuteTask = %v, want a TaskError", err)
	}
	if want := "task failed: ZeroDivisionError: division by zero"; err.Error() != want || output != "42\n" ||
		result.Status != client.Failed {
		t.Errorf("ExecuteTask = %+v, %q, %q; want the output and %q", result, output, err, want)
	}
}

func TestVerboseAgentPrintsOutput(t *testing.T) {
	rec, _ := json.Marshal(record(client.Succeeded))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			respond(w, 202, record(client.Queued))
			return
		}
		_, _ = w.Write([]byte(event(1, "4") + event(2, "2\n") + "event: record\ndata: " + string(rec) + "\n\n"))
	}))
	defer srv.Close()
	var verbose strings.Builder
	opts := client.AgentOptions{Options: client.Options{URL: srv.URL}, Verbose: &verbose}
	a, err := client.NewAgent(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, output, err := a.ExecuteTask(t.Context(), "answer"); err != nil || output != "42\n" ||
		verbose.String() != "42\n" {
		t.Errorf("ExecuteTask = %q, %v and printed %q; want 42 twice", output, err, verbose.String())
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, v := range []string{"CODEFLEET_FLEET", "CODEFLEET_URL", "CODEFLEET_TOKEN"} {
		t.Setenv(v, "")
	}
	t.Setenv("CODEFLEET_DATA", filepath.Join(dir, "data"))
	if _, err := client.Locate(""); !errors.Is(err, client.ErrNoFleet) {
		t.Errorf("Locate without a fleet = %v, want ErrNoFleet", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(source, path, url, token string) {
		t.Helper()
		o, err := client.Locate(path)
		if err != nil || o.URL != url || o.Token != token {
			t.Errorf("Locate %s = %q, %q, %v; want %q, %q", source, o.URL, o.Token, err, url, token)
		}
	}
	file("data/fleet.json", `{"url":"http://127.0.0.1:1","token":"d"}`)
	check("in the data directory", "", "http://127.0.0.1:1", "d")
	t.Chdir(dir)
	t.Setenv("CODEFLEET_DATA", "")
	t.Setenv("XDG_DATA_HOME", "data")
	t.Setenv("HOME", dir)
	for _, sub := range []string{"data/codefleet", ".local/share/codefleet"} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file("data/codefleet/fleet.json", `{"url":"http://127.0.0.1:5"}`)
	file(".local/share/codefleet/fleet.json", `{"url":"http://127.0.0.1:6"}`)
	check("despite a relative XDG_DATA_HOME", "", "http://127.0.0.1:6", "")
	t.Setenv("CODEFLEET_URL", "http://127.0.0.1:2")
	t.Setenv("CODEFLEET_TOKEN", "e")
	check("by address", "", "http://127.0.0.1:2", "e")
	t.Setenv("CODEFLEET_FLEET", file("f.json", `{"url":"http://127.0.0.1:3","token":"f"}`))
	check("by file", "", "http://127.0.0.1:3", "f")
	check("by argument", file("g.json", `{"url":"http://127.0.0.1:4","token":"g"}`), "http://127.0.0.1:4", "g")
	check("with a newline", file("h.json", `{"url":"http://127.0.0.1:7","token":"h\r\n"}`), "http://127.0.0.1:7", "h")
	for name, content := range map[string]string{
		"broken": `{`, "empty": `{}`, "unusable": `{"url":"http://127.0.0.1:8","token":"i\nj"}`,
	} {
		_, err := client.Locate(file(name, content))
		if _, ok := errors.AsType[*client.OptionsError](err); !ok {
			t.Errorf("Locate of the %s file = %v, want an OptionsError", name, err)
		}
	}
	if _, err := client.Locate(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Locate of an absent file = %v, want ErrNotExist", err)
	}
}
