package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestOutage checks that commands that run until Ctrl-C wait for a fleet that does not respond, and go on when it
// responds again.
func TestOutage(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	task, err := c.Submit(t.Context(), client.Submission{Task: client.Task{Code: "block"}})
	if err != nil {
		t.Fatal(err)
	}
	relay := faulttest.StartRelay(t, strings.TrimPrefix(f.URL, "http://"))
	t.Setenv("CODEFLEET_URL", relay.Through(f.URL))
	t.Setenv("CODEFLEET_TOKEN", ingesttest.Token)
	for _, test := range []struct {
		name, printed string
		args          []string
		last          func() error // makes the command print once more
	}{
		{"watch", task.TaskID, []string{"tasks", "--watch"}, func() error { return nil }},
		{"follow", "blocking\n", []string{"logs", "--follow", task.TaskID}, func() error {
			_, err := c.Cancel(t.Context(), task.TaskID)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			relay.Set(faulttest.Forward)
			signals, stdout, stderr := make(chan os.Signal, 1), &logtest.Log{}, &logtest.Log{}
			a := &app{
				stdin: strings.NewReader(""), stdout: stdout, stderr: stderr, env: os.Environ(), exit: os.Exit,
				signals: signals, watchInterval: time.Millisecond,
			}
			done := make(chan int, 1)
			go func() { done <- a.main(t.Context(), test.args) }()
			await := func(log *logtest.Log, want string) {
				t.Helper()
				limit, every := time.After(ingesttest.WaitTimeout), time.NewTicker(10*time.Millisecond)
				defer every.Stop()
				for !strings.Contains(log.String(), want) {
					select {
					case <-every.C:
					case <-limit:
						t.Fatalf("printed %q and %q, want %q", stdout.String(), stderr.String(), want)
					}
				}
			}
			await(stdout, test.printed)
			relay.Set(faulttest.Refuse)
			await(stderr, "the request failed; trying again until Ctrl-C: ")
			relay.Set(faulttest.Forward)
			if err := test.last(); err != nil {
				t.Fatal(err)
			}
			await(stderr, "codefleet: requests succeed again\n")
			want := errcode.ExitStopped // the task is cancelled
			if test.name == "watch" {
				want = errcode.ExitOK
				signals <- os.Interrupt
			}
			if code := <-done; code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, stderr.String())
			}
			if n := strings.Count(stderr.String(), "the request failed"); n != 1 {
				t.Errorf("the outage is reported %d times, want once: %s", n, stderr.String())
			}
		})
	}
}

// TestOutagePython makes the fleet unreachable while a Python program waits for a task. The program learns which task
// continues, and ends with an error that says what to do.
func TestOutagePython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	f := ingesttest.Start(t, 1, nil)
	relay := faulttest.StartRelay(t, strings.TrimPrefix(f.URL, "http://"))
	relay.SetOn("GET /v1/tasks/", faulttest.Refuse)
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", "-W", "error", "-c", `
import codefleet

codefleet._RETRY_FOR, codefleet._WAIT = 0.2, 0.1
agent = codefleet.create_agent()
result, output, error = agent.execute_code("block", verbose=True)
print(agent.last_record["task_id"], result.status, error)
agent.get_state()
`)
	cmd.Dir = "../../clients/python"
	cmd.Env = append(cmd.Environ(), "CODEFLEET_FLEET=", "CODEFLEET_URL="+relay.Through(f.URL),
		"CODEFLEET_TOKEN="+ingesttest.Token, "CODEFLEET_DATA="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d, %v, want 1", cmd.ProcessState.ExitCode(), err)
	}
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	id, rest, _ := strings.Cut(lines[len(lines)-1], " ")
	unreachable := "fleet at " + relay.Through(f.URL) + " cannot be reached: "
	if !strings.HasPrefix(rest, "failure "+unreachable) ||
		!strings.HasSuffix(rest, "; the fleet has accepted the task "+id+", which continues") {
		t.Errorf("the program prints %q, want the failure and the id of the task", stdout)
	}
	if got := stderr.String(); !strings.Contains(got, "codefleet.FleetError: "+unreachable) {
		t.Errorf("standard error is %q, want the FleetError", got)
	}
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	task, err := c.Get(t.Context(), id)
	if err != nil || task.Status.Terminal() {
		t.Errorf("the task is %s, %v, want one that has not ended", task.Status, err)
	}
	if _, err := c.Cancel(t.Context(), id); err != nil {
		t.Error(err)
	}
}
