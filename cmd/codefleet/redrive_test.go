package main

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// command runs one command line with the fleet f and returns its exit code and what it printed.
func command(t *testing.T, f *ingesttest.Fleet, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandWith(t, f, ingesttest.Token, args...)
}

// commandWith is command with the token of another caller.
func commandWith(t *testing.T, f *ingesttest.Fleet, token string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("CODEFLEET_URL", f.URL)
	t.Setenv("CODEFLEET_TOKEN", token)
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: os.Environ(), exit: os.Exit}
	code = a.main(t.Context(), args)
	return code, out.String(), errs.String()
}

// TestRerunOfLargeTask checks that a task whose data is no longer kept is not rerun, and that the hint proposes another
// command.
func TestRerunOfLargeTask(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	task := runTask(t, f, "print "+strings.Repeat("x", 300<<10))
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	gone := new(client.APIError)
	for !errors.As(err, &gone) { // the data is removed soon after the end
		if err := cmp.Or(err, clock.Sleep(t.Context(), 10*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = c.Submission(t.Context(), task.TaskID)
	}
	code, _, errs := command(t, f, "rerun", task.TaskID)
	if code != 2 || !strings.Contains(errs, "its data is above 256 KiB") ||
		!strings.HasSuffix(errs, "\n  try: codefleet submit --file PROGRAM.py --inputs @FILE\n") {
		t.Errorf("rerun of a large task: exit code %d, %s, want 2 and a hint at submit", code, errs)
	}
}

// runTask runs a program on the fleet f and returns the task's final record.
func runTask(t *testing.T, f *ingesttest.Fleet, code string) client.Record {
	t.Helper()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: code}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRedriveCommand(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	if code, out, _ := command(t, f, "dead", "redrive", "--all"); code != 0 || out != "no dead-lettered tasks\n" {
		t.Errorf("redrive --all: exit code %d, output %q, want 0 and a note that no task is dead-lettered", code, out)
	}
	dead, ok := runTask(t, f, "die"), runTask(t, f, "print 1")
	const notDead = "is succeeded: only dead-lettered tasks have a dead letter\n  try: codefleet dead "
	if code, _, errs := command(t, f, "dead", "show", ok.TaskID); code != 2 || !strings.Contains(errs, notDead) {
		t.Errorf("show of a task that is not dead: exit code %d, %s, want 2 and %q", code, errs, notDead)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"neither":  {nil, 2, "want task ids, --all or --cause"},
		"both":     {[]string{dead.TaskID, "--all"}, 2, "want task ids, --all or --cause"},
		"not dead": {[]string{ok.TaskID}, 2, "is succeeded: only dead-lettered tasks can be redriven"},
		"unknown":  {[]string{"x"}, 2, "unknown_task"},
		"one":      {[]string{dead.TaskID}, 0, dead.TaskID + "  queued"},
	} {
		code, out, errs := command(t, f, append([]string{"dead", "redrive"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: exit code %d, output %s%s, want exit code %d and %q", name, code, out, errs, c.code, c.want)
		}
	}
}

// TestRetryCompletion checks that the shell offers each task that can be retried.
func TestRetryCompletion(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var ids []string
	for range 2 {
		rec, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "print 1"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rec.TaskID)
	}
	if _, err := c.Cancel(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command(t, f, "__complete", "retry", "")
	if code != 0 || !strings.Contains(out, ids[0]+"\tcancelled") || strings.Contains(out, ids[1]) {
		t.Errorf("completion of retry: exit code %d, %s%s, want %s and not %s", code, out, errs, ids[0], ids[1])
	}
}
