package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

func exitText(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(e.ExitCode())
	}
	if err != nil {
		return err.Error()
	}
	return "0"
}

// TestExitCodes checks the exit code for every task status and for every kind of error.
func TestExitCodes(t *testing.T) {
	want := map[client.Status]int{
		client.Queued: 0, client.Running: 0, client.RetryWait: 0, client.Succeeded: 0,
		client.Failed: 1, client.Dead: 1, client.Blocked: 4,
		client.Timeout: 5, client.Cancelled: 5, client.Expired: 5,
	}
	for _, s := range statuses() {
		code, known := want[client.Status(s)]
		if got := errcode.ExitOfTask(s); got != code || !known {
			t.Errorf("ExitOfTask(%s) = %d, want %d (known to this test: %v)", s, got, code, known)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{markCall(&client.APIError{Status: 400}), 2},
		{markCall(&client.APIError{Status: 404}), 2},
		{markCall(&client.APIError{Status: 409}), 2},
		{markCall(&client.APIError{Status: 413}), 2},
		{markCall(&client.APIError{Status: 401}), 4},
		{markCall(&client.APIError{Status: 403}), 4},
		{markCall(&client.APIError{Status: 429}), 4},
		{markCall(&client.APIError{Status: 503}), 3},
		{markCall(&client.APIError{Status: 400, Code: "unexpected_response"}), 3},
		{markCall(errors.New("connection refused")), 3},
		{markCall(&os.PathError{Op: "write", Path: "/dev/stdout", Err: errors.New("no space left on device")}), 1},
		{markCall(usage("no")), 2},
		{markCall(fmt.Errorf("wait: %w", context.Canceled)), 5},
		{noFleet(client.ErrNoFleet), 3},
		{&runError{errors.New("write ~/.local: permission denied")}, 1},
		{&runError{usage("no")}, 2},
		{errors.New(`unknown command "x"`), 2},
	} {
		if got := explain(c.err).code; got != c.want {
			t.Errorf("exit code of %v = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestServes(t *testing.T) {
	workers := []client.Worker{{Pools: []string{"default", "gpu"}}, {Pools: nil}}
	for pool, want := range map[string]bool{"gpu": true, "default": true, "g": false, "": false} {
		if got := serves(workers, pool); got != want {
			t.Errorf("serves(%q) = %v, want %v", pool, got, want)
		}
	}
}

func TestSubmission(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"a.py": "print(1)", "data.csv": "a,b", "raw.bin": "\xff\x00", "in.json": `{"n": 1}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := taskFlags{
		file: "a.py", inputs: "@in.json", with: []string{"data.csv", "raw.bin"}, out: []string{"out/*"},
		timeout: 90 * time.Second, net: []string{"example.org"}, workspace: "w", session: "s", priority: "high",
		pool: "p", key: "k", partition: "part", env: []string{"A=1=2", "B="}, memory: 64, cpus: 0.5,
	}
	got, err := f.submission(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	csv, raw := "a,b", "/wA="
	want := client.Submission{
		Task: client.Task{
			Code: "print(1)", Inputs: json.RawMessage(`{"n": 1}`), Pool: "p", Artifacts: []string{"out/*"},
			Files:   []client.File{{Name: "data.csv", Text: &csv}, {Name: "raw.bin", Base64: &raw}},
			Limits:  &client.Limits{TimeoutS: 90, MemoryMB: 64, CPUs: 0.5},
			Env:     map[string]string{"A": "1=2", "B": ""},
			Network: &client.Network{Allow: []string{"example.org"}},
		},
		Workspace: "w", Session: "s", Priority: "high", IdempotencyKey: "k",
		PartitionKey: "part",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("submission (-want +got):\n%s", diff)
	}

	if got, err := (&taskFlags{file: "-"}).submission(nil, strings.NewReader("x = 1")); err != nil ||
		got.Code != "x = 1" {
		t.Errorf("submission with --file - = code %q, %v, want %q, nil", got.Code, err, "x = 1")
	}
	if got, err := (&taskFlags{file: "-"}).submission(nil, strings.NewReader("\ufeffx = 1")); err != nil ||
		got.Code != "x = 1" {
		t.Errorf("with a byte order mark: %q, %v", got.Code, err)
	}
	if got, err := (&taskFlags{}).submission([]string{"add", "two", "numbers"}, nil); err != nil ||
		got.Description != "add two numbers" {
		t.Errorf("submission with three arguments = description %q, %v, want %q, nil", got.Description, err,
			"add two numbers")
	}
	if got, err := (&taskFlags{}).submission([]string{"-"}, strings.NewReader("add\ntwo numbers\n")); err != nil ||
		got.Description != "add\ntwo numbers" {
		t.Errorf("submission with - = description %q, %v, want %q, nil", got.Description, err, "add\ntwo numbers")
	}
	if _, err := (&taskFlags{}).submission([]string{"add", "\xff"}, nil); err == nil ||
		err.Error() != "the task description is not UTF-8 text" {
		t.Errorf("submission with a description in another encoding = %v, want an error", err)
	}
	for words, want := range map[string]string{
		" \n": "empty", "\xff": "not UTF-8", strings.Repeat("a", maxTask+1): "larger than 32 MiB",
	} {
		if _, err := (&taskFlags{}).submission([]string{"-"}, strings.NewReader(words)); err == nil ||
			!strings.Contains(err.Error(), want) || explain(err).code != errcode.ExitUsage {
			t.Errorf("submission with %.10q on standard input = %v, want an error with %q and exit code 2", words, err,
				want)
		}
	}
}

func TestInvalidSubmissions(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, size := range map[string]int{"empty.py": 0, "huge": maxTask} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"a", "b"} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/x", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("bad.py", []byte("\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	twice := taskFlags{code: "x", with: []string{"a/x", "./a/x"}}
	if s, err := twice.submission(nil, nil); err != nil || len(s.Files) != 1 {
		t.Errorf("--with a/x --with ./a/x = %d files, %v, want one", len(s.Files), err)
	}
	for want, f := range map[string]taskFlags{
		"want exactly one of a task description": {code: "x", file: "y"},
		"no such file":                           {file: "missing.py"},
		"empty":                                  {file: "empty.py"},
		"not UTF-8":                              {file: "bad.py"},
		"--code is not UTF-8 text":               {code: "print('\xff')"},
		"--env is not UTF-8 text":                {code: "x", env: []string{"A=1", "B=\xfe"}},
		"--idempotency-key is not UTF-8 text":    {code: "x", key: "\xff"},
		"--partition-key is not UTF-8 text":      {code: "x", partition: "\xff"},
		"not valid JSON":                         {code: "x", inputs: "{"},
		"--inputs: missing: no such file":        {code: "x", inputs: "@missing"},
		"--inputs: a: is a directory":            {code: "x", inputs: "@a"},
		"--file a: is a directory":               {file: "a"},
		"--with: missing: no such file":          {code: "x", with: []string{"missing"}},
		"with its files is larger than 32 MiB":   {code: "x", with: []string{"huge"}},
		`"a/x" and "b/x" have the same name`:     {code: "x", with: []string{"a/x", "b/x"}},
		`"\xff.csv" is not valid UTF-8`:          {code: "x", with: []string{"a/\xff.csv"}},
		"larger than 32 MiB":                     {file: "-"},
		"--file /dev/zero is larger than 32 MiB": {file: "/dev/zero"},
		"--inputs: @/dev/zero is larger than 32": {code: "x", inputs: "@/dev/zero"},
		"--with /dev/zero: the task with its":    {code: "x", with: []string{"/dev/zero"}},
		"--cpus NaN: want a number":              {code: "x", cpus: math.NaN()},
		`--at "soon" is not a time`:              {code: "x", at: "soon"},
		"--timeout -1s: want a time from 100ms":  {code: "x", timeout: -time.Second},
	} {
		_, err := f.submission(nil, strings.NewReader(strings.Repeat("#", maxTask+1)))
		if err == nil || !strings.Contains(err.Error(), want) || explain(err).code != errcode.ExitUsage {
			t.Errorf("submission with %+v = %v, want an error with %q and exit code 2", f, err, want)
		}
	}
}

func TestParseAt(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 30, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"+10m":                 "2024-05-06T12:40:00Z",
		"13:00":                "2024-05-06T13:00:00Z",
		"12:00":                "2024-05-07T12:00:00Z", // tomorrow, because it has passed today
		"12:00:05":             "2024-05-07T12:00:05Z",
		"2030-01-02T03:04:05Z": "2030-01-02T03:04:05Z",
	} {
		got, err := parseAt(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("parseAt(%q) = %v, %v, want %s, nil", text, got, err, want)
		}
	}
}

// TestLiveStream checks that the live output and the rest, printed at the end, make up the whole output.
func TestLiveStream(t *testing.T) {
	for _, c := range []struct {
		live        []string
		whole, want string
		ok          bool
	}{
		{nil, "all", "all", true},
		{[]string{"a", "l"}, "all", "l", true},
		{[]string{"all"}, "all", "", true},
		{[]string{"a", "ll"}, "all", "", true},
		{[]string{"x"}, "all", "all", false},
	} {
		var s liveStream
		var out strings.Builder
		for _, text := range c.live {
			if err := s.print(&out, text); err != nil {
				t.Fatal(err)
			}
		}
		if got, ok := s.rest(c.whole); got != c.want || ok != c.ok || out.String() != strings.Join(c.live, "") {
			t.Errorf("rest(%q) after %q = %q, %v, want %q, %v", c.whole, c.live, got, ok, c.want, c.ok)
		}
	}
}

func TestTiming(t *testing.T) {
	got := timing(client.Result{
		TaskID: "abc", Status: client.Succeeded, Sandbox: schemas.Sandbox{Boot: "warm"},
		TimingMS: schemas.Timing{Queued: 1.26, Checkout: 0.4, SandboxWait: 0.1, Run: 9.6, Commit: 2, Total: 13.4},
	})
	if want := "succeeded in 13 ms: queued 1.3, checkout 0.4, sandbox (warm) 0.1, run 9.6, commit 2.0 · " +
		"abc"; got != want {
		t.Errorf("timing = %q, want %q", got, want)
	}
}

func TestEnvironmentText(t *testing.T) {
	for warming, want := range []string{"prepared when its first task arrives", "being prepared"} {
		e := client.Environment{Boxes: map[string]int{"warming": warming}}
		if got := environmentText(e); got != want {
			t.Errorf("environmentText(%+v) = %q, want %q", e, got, want)
		}
	}
	e := client.Environment{What: "host /usr", MadeMS: 71.6}
	if got, want := environmentText(e), "host /usr"; got != want {
		t.Errorf("environmentText(%+v) = %q, want %q", e, got, want)
	}
	failed := client.Environment{Error: "pip\nfailed " + strings.Repeat("x", 2000), Reason: "unavailable"}
	if got := environmentText(failed); len(got) > 200 || !strings.HasPrefix(got, "unavailable: pip failed xxx") {
		t.Errorf("environmentText of a long error = %q, want one line of at most 200 bytes", got)
	}
	e.Restored = true
	if got, want := environmentText(e), "host /usr (boxes restored from a snapshot, the newest in 72 ms)"; got != want {
		t.Errorf("environmentText(%+v) = %q, want %q", e, got, want)
	}
}

// A command refuses an unknown subcommand. The help with exit code 0 would be a success for a script.
func TestUnknownSubcommandIsAnError(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if !c.HasParent() || !c.HasSubCommands() {
			return
		}
		if !c.Runnable() || c.Args == nil {
			t.Errorf("%s: an unknown subcommand prints the help and succeeds; use commandGroup", c.CommandPath())
		}
	}
	visit((&app{}).root())
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose output cannot be written fails, also if it prints line by line and ignores errors.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"state", "--help"}, {"run", "--help"}, {"version"}} {
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: fullWriter{}, stderr: &errs}
		code := a.main(t.Context(), args)
		if code != errcode.ExitFailed || !strings.Contains(errs.String(), "write the output") {
			t.Errorf("%q: exit code %d, error output %q; want %d and an error", args, code, &errs, errcode.ExitFailed)
		}
	}
}
