package workermain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
	"github.com/codefleet/codefleet/plugin"
	"github.com/codefleet/codefleet/plugin/workermain"
	"github.com/codefleet/codefleet/schemas"
)

func TestMain(m *testing.M) {
	embedded.S3Main()
	faulttest.Main(m, map[string]faulttest.Role{"worker": workerProcess})
}

// fleet is a fleet without a worker.
type fleet struct {
	client *client.Client
	file   string   // the path of its fleet.json
	env    []string // the environment of a worker that joins it
	data   string   // the data directory of this worker
}

func startFleet(t *testing.T) fleet {
	t.Helper()
	return startFleetWith(t, uptest.Config(t))
}

func startFleetWith(t *testing.T, conf *config.Config) fleet {
	t.Helper()
	runsc := executortest.Runsc(t)
	f, c := uptest.Start(t, up.Options{Config: conf})
	data, err := os.MkdirTemp("", "cf") //nolint:usetesting // a short path, because sockets are created below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	return fleet{c, uptest.File(t, f), []string{
		"HOME=" + data, "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "CODEFLEET_DATA=" + data,
		"CODEFLEET_EXECUTION_RUNSC=" + runsc, "CODEFLEET_QUEUE_ATTEMPTS=2",
	}, data}
}

// trial is a plugin with all hooks. What a hook does is the value of the task's label that has the hook's name.
type trial struct {
	mu      sync.Mutex
	results map[string]int // invocations of the hook result, by task
}

func (*trial) Name() string { return "trial" }

func (*trial) Select(_ context.Context, t plugin.Task, s plugin.Selection) ([]string, error) {
	switch t.Data.Labels["select"] {
	case "panic":
		panic("select")
	case "add":
		return []string{"no/tool", "calculator/add"}, nil
	}
	return s.Selected, nil
}

func (*trial) Generate(_ context.Context, t plugin.Task, d plugin.Draft) (string, error) {
	switch t.Data.Labels["generate"] {
	case "error":
		return "", errors.New("generate")
	case "41":
		return "from servers.calculator import add\nadd(40, 1)  # " + d.By, nil
	}
	return "", nil
}

func (*trial) Validate(_ context.Context, t plugin.Task, p plugin.Program) error {
	switch t.Data.Labels["validate"] {
	case "panic":
		panic("validate")
	case "refuse":
		return &plugin.Refusal{
			Code: "no_" + p.Imports[0].Module, Message: "not " + p.Calls[0].Name,
			Hint: "do without", Line: p.Calls[0].Line,
		}
	}
	return nil
}

func (*trial) Call(_ context.Context, t plugin.Task, c plugin.Call) (json.RawMessage, error) {
	switch t.Data.Labels["call"] {
	case "refuse":
		return nil, &plugin.Refusal{Message: "no sums today"}
	case "panic":
		panic("call")
	case "change":
		return json.RawMessage(`{"a": 40, "b": 2}`), nil
	case "bad":
		return json.RawMessage(`{"a": "forty", "b": 2}`), nil
	}
	return nil, nil
}

func (p *trial) Result(_ context.Context, t plugin.Task, r *plugin.Result) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results[t.ID]++
	switch action := t.Data.Labels["result"]; {
	case action == "panic", action == "once" && p.results[t.ID] == 1:
		panic("result")
	case action == "redact":
		r.Output = strings.ReplaceAll(r.Output, "4711", "****")
		r.Value, r.Checkpoint = json.RawMessage(`"****"`), json.RawMessage(`{"pin":"****"}`)
		r.Labels["redacted"], r.Labels["result"] = "yes", "redacted"
		r.Notes = append(r.Notes, schemas.Finding{Rule: "numbers", Message: "one redacted"})
	}
	return nil
}

const sum = "from servers.calculator import add\nfrom client.mcp_client import ToolError\n" +
	"try:\n    r = add(1, 2)\nexcept ToolError as e:\n    r = str(e)\nr"

const setPin = "from client.session import checkpoint\ncheckpoint(pin=4711)\nprint('pin', 4711)\n4711"

// TestHooks checks each hook in a whole fleet: its effect on a task, and the effect of its panics and errors.
func TestHooks(t *testing.T) {
	f := startFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan error, 1)
	p := &trial{results: map[string]int{}}
	go func() {
		ended <- workermain.Run(ctx, workermain.Config{Args: []string{"--fleet", f.file}, Env: f.env, Stderr: &log}, p)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil\n%s", err, log.String())
		}
		if !strings.Contains(log.String(), "trial: select, generate, validate, call, result") {
			t.Errorf("the log does not list the hooks in order:\n%s", log.String())
		}
	})
	describe := "add 5 and 3"
	for _, c := range []struct {
		hook, action string
		task         client.Task
		problem      func(r client.Result) string
	}{
		{"validate", "refuse", client.Task{Code: "import os\n\nos.system('true')"}, func(r client.Result) string {
			want := &schemas.Error{Code: "no_os", Message: "not os.system", Hint: "do without", Line: 3}
			return cmp.Diff(want, r.Error) + unless(r.Status == schemas.Blocked, "want blocked")
		}},
		{"validate", "panic", client.Task{Code: "1"}, func(r client.Result) string {
			return unless(r.Status == schemas.Dead && r.Attempt == 2, "want dead in run 2") +
				unless(r.Error != nil && strings.Contains(r.Error.Message+r.Error.Cause,
					"plugin trial: validate: hook panicked"), "want the plugin's name in the error")
		}},
		{"call", "change", client.Task{Code: sum}, called("42", true)},
		{"call", "bad", client.Task{Code: sum}, called("/a: got string, want number", false)},
		{"call", "refuse", client.Task{Code: sum}, called("no sums today", false)},
		{"call", "panic", client.Task{Code: sum}, called("plugin trial: call: hook panicked", false)},
		{"result", "redact", client.Task{Code: setPin}, func(r client.Result) string {
			return cmp.Diff("pin ****\n", r.Output) + cmp.Diff(`"****"`, string(r.Result)) +
				cmp.Diff(`{"pin":"****"}`, string(r.Checkpoint)) +
				cmp.Diff(map[string]string{"result": "redacted", "redacted": "yes"}, r.Labels) +
				cmp.Diff([]schemas.Finding{{Rule: "numbers", Level: "info", Message: "one redacted"}}, r.Guardrails)
		}},
		{
			"result", "panic",
			client.Task{Code: "open('left.txt', 'w').write('x'); print(4711)"},
			func(r client.Result) string {
				return unless(r.Status == schemas.Dead && r.Attempt == 2, "want dead in run 2") +
					unless(r.Output == "" && len(r.Workspace.Changed) == 0, "want no output and no commit")
			},
		},
		{
			"result", "once",
			client.Task{Code: sum, Labels: map[string]string{"call": "change"}},
			func(r client.Result) string {
				return called("42", true)(r) + unless(r.Attempt == 2 && len(r.Tools.Calls) == 1 &&
					r.Tools.Calls[0].Replayed, "want the changed call replayed in run 2")
			},
		},
		{"select", "add", client.Task{Description: describe}, func(r client.Result) string {
			return cmp.Diff([]string{"calculator/add"}, r.Tools.Selected)
		}},
		{"select", "panic", client.Task{Description: describe}, func(r client.Result) string {
			return unless(len(r.Tools.Selected) > 0 && r.Status == schemas.Succeeded,
				"want success with the fleet's own tools")
		}},
		{"generate", "41", client.Task{Description: describe}, func(r client.Result) string {
			return written("41", "plugin")(r) + unless(strings.HasSuffix(r.Code, "# rules"),
				"want the hook to get the rules' draft")
		}},
		{
			"generate", "41",
			client.Task{Description: "frobnicate the quux"},
			written("41", "plugin"),
		}, // without a draft by the rules
		{"generate", "error", client.Task{Description: describe}, written("8", "rules")},
	} {
		t.Run(c.hook+" "+c.action, func(t *testing.T) {
			if c.task.Labels == nil {
				c.task.Labels = map[string]string{}
			}
			c.task.Labels[c.hook] = c.action
			c.task.Retry = &schemas.Retry{BackoffS: 0.01}
			r := run(t, f.client, c.task)
			if problem := c.problem(r); problem != "" {
				t.Errorf("%s\nrun %d: %s with %s by %s, calls %+v: %+v", problem, r.Attempt, r.Status, r.Result,
					r.GeneratedBy, r.Tools.Calls, r.Error)
			}
		})
	}
}

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem + "\n"
}

// called checks the program's result, and that the result lists its one call with the given outcome.
func called(value string, ok bool) func(client.Result) string {
	return func(r client.Result) string {
		return unless(r.Status == schemas.Succeeded && strings.Contains(string(r.Result), value), "want "+value) +
			unless(len(r.Tools.Calls) == 1 && r.Tools.Calls[0].OK == ok, fmt.Sprintf("want one call, ok %v", ok))
	}
}

func written(value, by string) func(client.Result) string {
	return func(r client.Result) string {
		return unless(string(r.Result) == value && r.GeneratedBy == by, "want "+value+" by "+by)
	}
}

// run runs a task and returns its result. It fails the test if live output contains 4711 or differs from the result.
func run(t *testing.T, c *client.Client, task client.Task) client.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rec, err := c.Submit(ctx, client.Submission{Task: task, Session: "trial"})
	if err != nil {
		t.Fatal(err)
	}
	var live strings.Builder
	rec, err = c.Watch(ctx, rec.TaskID, 0, func(e client.Event) error {
		if e.Stream == "stdout" {
			live.WriteString(e.Text)
		}
		if strings.Contains(e.Text, "4711") {
			t.Errorf("live output is %q, want it without 4711", e.Text)
		}
		return nil
	})
	if err != nil || rec.Result == nil {
		t.Fatalf("Watch = %+v, %v; want a result", rec, err)
	}
	if live.String() != rec.Result.Output {
		t.Errorf("live output %q, want %q as in the result", live.String(), rec.Result.Output)
	}
	return *rec.Result
}

// TestExample builds and runs examples/plugin.
func TestExample(t *testing.T) {
	f := startFleet(t)
	program := filepath.Join(t.TempDir(), "plugin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/plugin")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build = %v, want nil\n%s", err, out)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "--fleet", f.file)
	cmd.Env, cmd.Stderr = f.env, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it removes its boxes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exit := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() { _ = exit() })
	r := run(t, f.client, client.Task{Code: "from fractions import Fraction\nstr(Fraction(1, 3))"})
	if r.Status != schemas.Blocked || r.Error == nil || r.Error.Code != "import_refused" || r.Error.Line != 1 {
		t.Errorf("%s, %+v, want blocked: import_refused, line 1", r.Status, r.Error)
	}
	r = run(t, f.client, client.Task{Code: "print('sk-abcdefgh12')\n6*7"})
	if string(r.Result) != "42" || r.Labels["house-rules"] != "2026-1" || r.Output != "[key]\n" {
		t.Errorf("%s with labels %v and output %q, want 42, the label and no API key", r.Result, r.Labels, r.Output)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := exit(); err != nil {
		t.Errorf("the worker exited with %v, want nil\n%s", err, log.String())
	}
}

// TestInvalidPlugin checks that Run returns an error for an invalid plugin before the worker starts.
func TestInvalidPlugin(t *testing.T) {
	err := workermain.Run(t.Context(), workermain.Config{
		Args: []string{"--nats", "nats://127.0.0.1:1"},
		Env:  []string{"HOME=" + t.TempDir(), "CODEFLEET_S3_ENDPOINT=http://127.0.0.1:1"},
	}, nameless{})
	if err == nil || !strings.Contains(err.Error(), "needs a unique name") {
		t.Errorf("Run = %v, want an error about the name", err)
	}
}

type nameless struct{}

func (nameless) Name() string { return "" }
