package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestAwayFleet takes the fleet away while a command runs until Ctrl-C, and gives it back.
func TestAwayFleet(t *testing.T) {
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
			await(stderr, "the fleet does not respond, trying again until Ctrl-C: ")
			relay.Set(faulttest.Forward)
			if err := test.last(); err != nil {
				t.Fatal(err)
			}
			await(stderr, "codefleet: the fleet responds again\n")
			if test.name == "watch" {
				signals <- os.Interrupt
			}
			if code := <-done; code != 0 {
				t.Errorf("exit code %d, want 0: %s", code, stderr.String())
			}
			if n := strings.Count(stderr.String(), "does not respond"); n != 1 {
				t.Errorf("the outage is reported %d times, want once: %s", n, stderr.String())
			}
		})
	}
}
