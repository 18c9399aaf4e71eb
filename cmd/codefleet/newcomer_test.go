package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/sourcetest"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/up"
)

// TestNewcomer checks the output and exit codes of command lines that new users try.
func TestNewcomer(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Chdir(t.TempDir())
	for _, name := range []string{"dir.py", "empty"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"job.py": "print from a file", "my job.py": "print from a file", "task.txt": "Add 2 and 3",
		"my task.txt": "Add 2 and 3",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string // separated by |
		code int
		want string
	}{
		{"run|job.py", 0, "from a file\n"},
		{"run|task.txt", 2, "task.txt is a file, not a task"},
		{"run|./", 2, "./ is a directory, not a task"},
		{"run|nosuch.py", 2, "nosuch.py: no such file"},
		{"run|dir.py", 2, "dir.py is a directory, not a task"},
		{"run|my job.py", 0, "from a file\n"},
		{"run|my task.txt", 2, "try: --file 'my task.txt' if it is a Python program, or - < 'my task.txt' if it"},
		{"run|my|job.py", 2, "try: --file 'my job.py', and --inputs JSON"},
		{"run|job.py|out.csv", 2, "job.py is a Python file, and not a task together with other words"},
		{"run|job.py|--|--name|ada", 2, "try: --file job.py, and --inputs JSON"},
		{"submit|job.py|job.py", 2, "job.py is a Python file"},
		{"submit|python3|job.py", 2, "job.py is a Python file"},
		{"run|python job.py out.csv", 2, "job.py is a Python file"},
		{"run|--net|https://example.org/x|--code|x", 2, "try: --net example.org\n"},
		{"run|--net|example.org/x|--code|x", 2, `--net "example.org/x" has a path: want a host, such as example.org`},
		{"run|--net|10.0.0.1|--code|print 1", 0, "note: programs cannot reach 10.0.0.1: it is not on the public"},
		{"submit|--net|localhost:80|--code|print 1", 0, "note: programs cannot reach localhost:80"},
		{"run|--timeout|9999h|--code|x", 2, "want a time from 100ms to 168h (7 days)"},
		{"run|--timeout|0s|--code|x", 2, "--timeout 0s: want a time from 100ms"},
		{"run|--timeout|1ns|--code|x", 2, "--timeout 1ns: want a time from 100ms"},
		{"run|--timeout|1ms|--code|x", 2, "--timeout 1ms: want a time from 100ms to 168h (7 days)"},
		{"run|--timeout|192h|--code|x", 2, "--timeout 192h: want"},
		{"run|--timeout|90|--code|x", 2, "--timeout 90: want a time with its unit (ms, s, m or h), such as 90s"},
		{"run|--memory|64MB|--code|print 1", 0, "1\n"},
		{"tools|search|x|--limit|-1", 2, "--limit -1: want at least 1"},
		{"run|--memory|-1|--code|x", 2, "--memory -1: want at least 16 MB"},
		{"submit|--memory|0|--code|x", 2, "--memory 0: want at least 16 MB"},
		{"run|--cpus|0|--code|x", 2, "--cpus 0: want a number from 0.01 to 1024, such as 0.5"},
		{"run|--cpus|0.009|--code|x", 2, "--cpus 0.009: want a number from 0.01"},
		{"run|--cpus|1e308|--code|x", 2, "--cpus 1e+308: want a number from 0.01"},
		{"run|--cpus|NaN|--code|x", 2, "--cpus NaN: want a number from 0.01"},
		{"submit|--at|+-5m|--code|x", 2, `--at "+-5m": want a time from now, such as +10m`},
		{"submit|--at|++5m|--code|x", 2, `--at "++5m": want a time from now`},
		{"submit|--at|+5|--code|x", 2, `--at "+5": want a time from now`},
		{"run|--env|A-B=1|--code|x", 2, "/env/A-B: \"A-B\": want 1 to 128 letters (a-z, A-Z), digits and _"},
		{"run|--pool|a b|--code|x", 2, "/pool: \"a b\": a name is 1 to 63 of a-z, 0-9 and -"},
		{"run|--workspace|a b|--code|x", 2, "workspace \"a b\": a name is 1 to 63 letters (a-z, A-Z), digits, _ and -"},
		{"run|--skill|A b", 2, "/skill: \"A b\": want words of a-z and 0-9, joined by -"},
		{"schedules|add|x|* * * * *", 2, "try: codefleet schedules add report '0 9 * * 1-5' --file report.py\n"},
		{"triggers|add|x|--type|y", 2, "try: codefleet triggers add invoice --type order.created --file invoice.py\n"},
		{"submit", 2, "try: codefleet submit --code 'print(6*7)'\n"},
		{"skills|check|../nosuch", 2, "codefleet: ../nosuch: no such file\n"},
		{"state|get|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"--version", 0, "codefleet dev ("},
		{"--version|--fleet|x", 0, "codefleet dev ("},
		{"--version|-o|json", 0, `"version": "dev"`},
		{"-v|-o|json", 0, `"version": "dev"`},
		{"--help|-o|json", 0, "Usage:\n  codefleet [command]"},
		{"-h|--color|never", 0, "Usage:\n  codefleet [command]"},
		{"workspace|--help|-o|json", 0, "Usage:\n  codefleet workspace [flags]"},
		{"up|--nats|foo", 2, "try: codefleet up --help\n"},
		{"mcp|--transport|http|--http|banana", 2, "try: codefleet mcp --help\n"},
		{"workspace|pull|--workspace|mistyped|dir", 2, "the workspace mistyped has no commits"},
		{"workspace|push|--workspace|mistyped|empty", 2, "the workspace mistyped has no commits"},
		{"workspace|push|empty", 0, "nothing to do: empty and generation 0 of main are equal"},
		{"workspace|restore|1|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|pin|x|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|ls|-g|1|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|diff|1|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|cat|x|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|rm|x|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|rm|x|y|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|pull|job.py", 2, "job.py is not a directory"},
		{"workspace|push|job.py", 2, "job.py is not a directory"},
		{"workspace|log|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|ls|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|pin|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|pin|--remove|x|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|check|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|repair|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|fork|--to|x|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"workspace|rm|--all|--yes|--workspace|mistyped", 2, "the workspace mistyped has no commits"},
		{"privacy|scan|.", 2, "codefleet: .: is a directory\n"},
		{"workspace|pin|../x", 2, `bad_name: "../x" is not a valid name`},
		{"workspace|pin|..", 2, `bad_name: ".." is not a valid name`},
		{"workspace|pin|", 2, "argument 1 is empty"},
		{"workspace|restore|nosuchpin", 2, "the workspace main has no such pin"},
		{"workspace|restore|nosuchpin", 2, "codefleet workspace pin  (lists the pins)"},
		{"pause|pool/GPU_1", 2, `pool "GPU_1": a name is 1 to 63 of a-z, 0-9 and -`},
		{"pause|pool/", 2, `pool "": a name is 1 to 63 of a-z, 0-9 and -`},
		{"pause|pool/nosuch", 0, "note: no worker serves the task pool nosuch, and it has no tasks (codefleet work"},
		{"pause|tenant/nosuch", 0, "note: the fleet has no tenant nosuch (codefleet tenants)"},
		{"limits|set|nosuch|--weight|2", 0, "note: the fleet has no tenant nosuch (codefleet tenants)"},
		{"tokens|--tenant|nosuch", 0, "note: the fleet has no tenant nosuch (codefleet tenants)"},
		{"dead|redrive|--cause|nosuchcode", 0, "note: the fleet has no error code nosuchcode"},
		{"dead|--cause|nosuchcode", 0, "note: the fleet has no error code nosuchcode"},
		{"-o|json|run", 2, `{"error":{"message":"want exactly one of`},
		{"-o|json|status|x", 2, `"code":"unknown_task"`},
		{"tasks|--nonsense|-o|json", 2, `{"error":{"message":"unknown flag: --nonsense"`},
		{"nonsense|--output=json", 2, `{"error":{"message":"unknown command`},
		{"run|--nonsense|--|-o|json", 2, "codefleet: unknown flag: --nonsense\n"},
	} {
		code, out, errs := command(t, f, strings.Split(c.args, "|")...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("codefleet %s: exit code %d, output %s%s, want exit code %d and %q",
				c.args, code, out, errs, c.code, c.want)
		}
	}
	if _, err := os.Stat("dir"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the directory after a pull of a mistyped workspace = %v, want %v", err, fs.ErrNotExist)
	}
}

// TestReadmeShowsUp checks that the README shows what `codefleet up` prints.
func TestReadmeShowsUp(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(sourcetest.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Env: []string{"HOME=/nonexistent"}})
	if err != nil {
		t.Fatal(err)
	}
	const data = "/home/you/.local/share/codefleet"
	var out bytes.Buffer
	a := &app{stdout: &out, output: "text"}
	shown := addresses{
		HTTP: "http://127.0.0.1:8787", Page: "http://127.0.0.1:8787/ui/login?code=SAN7CE2SXRTKM4LPYQHJ5BWDVI",
		NATS: "nats://127.0.0.1:4222", S3: "http://127.0.0.1:9000",
		Data: data, Fleet: data + "/fleet.json", Model: modelText(c), Weather: c.Weather.Provider,
	}
	if err := a.print(shown, func(w io.Writer) { showAddresses(w, shown, 179*time.Millisecond) }); err != nil {
		t.Fatal(err)
	}
	if want := "$ bin/codefleet up\n" + out.String() + "```\n"; !strings.Contains(string(readme), want) {
		t.Errorf("README.md lacks this block:\n%s", want)
	}
}

// TestErrorsAsJSON checks that -o json prints an error as one JSON object, on standard error.
func TestErrorsAsJSON(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	code, out, errs := command(t, f, "-o", "json", "status", "x")
	var got errorOutput
	err := json.Unmarshal([]byte(errs), &got)
	if err != nil || out != "" || got.Error.ExitCode != code || got.Error.Hint == "" ||
		got.Error.Code != "unknown_task" {
		t.Errorf("status -o json: output %q, error %q, %v, want no output, and JSON with exit_code %d, a hint and %s",
			out, errs, err, code, "unknown_task")
	}
}

// TestQueuedTasks checks that tasks and status show the program of a queued task, and when it will run.
func TestQueuedTasks(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	_, id, _ := command(t, f, "submit", "--at", "+90m", "--code", "print later")
	_, tasks, _ := command(t, f, "tasks")
	_, status, _ := command(t, f, "status", strings.TrimSpace(id))
	if !strings.Contains(tasks, "queued, runs in 1h") || !strings.Contains(tasks, "print later") {
		t.Errorf("tasks = %s, want the time to the run and the program", tasks)
	}
	if !strings.Contains(status, "print later") || !strings.Contains(status, "runs at") {
		t.Errorf("status = %s, want the time of the run and the program", status)
	}
}

// TestRunAt checks that a task that is not due yet is not waited for without a word.
func TestRunAt(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	for _, output := range []string{"text", "json"} {
		code, out, errs := command(t, f, "run", "--at", "+3s", "-o", output, "--code", "print now")
		if code != 0 || !strings.Contains(out, "now") || !strings.Contains(errs, "note: the task waits until 20") {
			t.Errorf("run --at -o %s: exit code %d, output %q, %s, want 0, now, and a note with the time",
				output, code, out, errs)
		}
	}
}

// TestWaitIsExplained checks that commands that wait for a task say what it waits for, and that a second signal ends
// them at once, except run, which cancels its task.
func TestWaitIsExplained(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
	})
	_, id, _ := command(t, f, "submit", "--code", "print 1")
	id = strings.TrimSpace(id)
	_, late, _ := command(t, f, "submit", "--at", "+90m", "--code", "print 1")
	late = strings.TrimSpace(late)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("run.py", []byte("def run(): pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const noWorker = "note: the task waits: no worker is running (codefleet why "
	const later = "note: the task waits: the caller asked for a later start, until 20"
	var wg sync.WaitGroup
	for _, c := range []struct {
		args, want string
	}{
		{"result " + id + " --wait 1h", noWorker + id + ")\n"},
		{"logs -f " + id, noWorker + id + ")\n"},
		{"result --wait 1h " + late, later},
		{"logs -f " + late, later},
		{"guard check run.py", noWorker},
		{"skills save a -d b --file run.py", noWorker},
		{"run --file run.py", noWorker},
		{"run --file run.py -o json", noWorker},
	} {
		signals, exited := make(chan os.Signal, 2), make(chan int, 1)
		var once sync.Once
		a := &app{
			stdin: strings.NewReader(""), stdout: io.Discard, signals: signals,
			env: os.Environ(), exit: func(code int) { exited <- code },
			stderr: writerFunc(func(p []byte) (int, error) {
				once.Do(func() {
					if !strings.HasPrefix(string(p), c.want) {
						t.Errorf("%q prints %q first, want %q", c.args, p, c.want)
					}
					signals <- syscall.SIGTERM
					if strings.HasPrefix(c.args, "run") {
						return
					}
					signals <- syscall.SIGTERM
					select {
					case code := <-exited:
						if code != errcode.ExitKilled {
							t.Errorf("%q: exit code %d after two signals, want %d", c.args, code, errcode.ExitKilled)
						}
					case <-time.After(ingesttest.WaitTimeout):
						t.Errorf("%q goes on after two signals", c.args)
					}
				})
				return len(p), nil
			}),
		}
		wg.Go(func() {
			code := a.main(t.Context(), strings.Fields(c.args))
			if want := errcode.ExitStopped; code != want {
				t.Errorf("%q: exit code %d after a signal, want %d", c.args, code, want)
			}
		})
	}
	wg.Wait()
	if _, tasks, _ := command(t, f, "tasks", "--status", "cancelled"); !strings.Contains(tasks, "def run(): pass") {
		t.Errorf("cancelled tasks = %s, want that of run", tasks)
	}
}

// TestLogsWithoutRun checks that logs explains why a task that has not begun has no events.
func TestLogsWithoutRun(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	_, id, _ := command(t, f, "submit", "--at", "+90m", "--code", "print 1")
	id = strings.TrimSpace(id)
	const later = "note: the task waits: the caller asked for a later start, until 20"
	if code, out, errs := command(t, f, "logs", id); code != 0 || out != "" || !strings.HasPrefix(errs, later) {
		t.Errorf("logs of a queued task: exit code %d, %s%s, want 0 and %q", code, out, errs, later)
	}
	command(t, f, "cancel", id)
	const want = "note: no run of the task began: it is cancelled\n"
	if code, out, errs := command(t, f, "logs", id); code != 0 || out+errs != want {
		t.Errorf("logs of a cancelled task: exit code %d, %s%s, want 0 and %q", code, out, errs, want)
	}
	if code, out, errs := command(t, f, "logs", "-f", id); code == 0 || out+errs != want {
		t.Errorf("logs -f of a cancelled task: exit code %d, %s%s, want its status's, and %q", code, out, errs, want)
	}
	if _, out, errs := command(t, f, "retry", id); !strings.Contains(out, "runs at") {
		t.Errorf("retry of a cancelled task: %s%s, want the time of its run", out, errs)
	}
}

// TestTasksOf checks that the tasks of a run are those of its running steps, items and runs of other workflows.
func TestTasksOf(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run, err := c.RunWorkflow(t.Context(), client.WorkflowRequest{Workflow: json.RawMessage(`{"name":"w","steps":[
		{"id":"a","needs":[],"code":"1"}, {"id":"b","needs":[],"wait":{"for":"1h"}},
		{"id":"c","needs":[],"for_each":{"in":[1,2]},"code":"1"},
		{"id":"d","needs":[],"workflow":{"name":"x","steps":[{"id":"e","code":"1"}]}}, {"id":"later","code":"1"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, rec := range tasksOf(t.Context(), c, run.RunID) {
		rec, err := c.Get(t.Context(), rec.TaskID)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, rec.EventID)
	}
	if want := []string{"a/-1/1", "e/-1/1", "c/0/1"}; !slices.Equal(steps, want) {
		t.Errorf("tasksOf returns the tasks of %v, want %v", steps, want)
	}
	if note, _ := new(app).waitNote(t.Context(), c, client.Record{TaskID: "unknown"}); note != "" {
		t.Errorf("note about a task whose task pool is unknown: %s, want none", note)
	}
}

// TestHintsNameTheTask checks that the next step after an error names the task of the command line.
func TestHintsNameTheTask(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	id := runTask(t, f, "print 1").TaskID
	f.AwaitSubmission(t, id)
	t.Setenv("VISUAL", "")
	for _, c := range []struct{ args, editor, want string }{
		{"retry " + id, "", "try: codefleet status " + id + "; codefleet rerun " + id + " also runs"},
		{"rerun --edit " + id, "", "no editor is known\n  try: EDITOR=vi codefleet rerun " + id + " --edit\n"},
		{"rerun --edit " + id, "false", "the editor false failed: nothing was submitted: exit status 1\n" +
			"  try: EDITOR=vi codefleet rerun " + id + " --edit\n"},
		{"rerun --edit " + id, "nosucheditor", "the editor nosucheditor cannot be started: nothing was submitted\n" +
			"  try: EDITOR=vi codefleet rerun " + id + " --edit\n"},
		{"rerun --edit " + id, "/nosuch/editor", "the editor /nosuch/editor cannot be started"},
	} {
		t.Setenv("EDITOR", c.editor)
		code, out, errs := command(t, f, strings.Fields(c.args)...)
		wantCode := errcode.ExitUsage
		if c.editor == "false" { // it has started
			wantCode = errcode.ExitFailed
		}
		if code != wantCode || !strings.Contains(errs, c.want) {
			t.Errorf("%s with the editor %q: exit code %d, %s%s, want %d and %q", c.args, c.editor, code, out, errs,
				wantCode, c.want)
		}
	}
}

// TestEarlierTask checks that a second task with an idempotency key says that it does not run again.
func TestEarlierTask(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	const note = "note: the task of this key was submitted "
	for i, args := range [][]string{
		{"run", "--code", "print 1", "--idempotency-key", "k"},
		{"run", "--code", "print 1", "--idempotency-key", "k"},
		{"submit", "--code", "print 1", "--idempotency-key", "k"},
	} {
		code, out, errs := command(t, f, args...)
		if code != 0 || strings.Contains(errs, note) != (i > 0) {
			t.Errorf("%s, time %d: exit code %d, %s%s, want 0 and, after the first time, %q", args[0], i+1, code, out,
				errs, note)
		}
	}
}

// TestNoArtifacts checks that a task without artifacts is not answered with nothing.
func TestNoArtifacts(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	task := runTask(t, f, "print 1")
	for _, sub := range []string{"ls", "get"} {
		code, out, errs := command(t, f, "artifacts", sub, task.TaskID)
		if code != 0 || out != "" || errs != "note: the task has no artifacts\n" {
			t.Errorf("artifacts %s: exit code %d, output %q, %q, want 0 and a note", sub, code, out, errs)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := command(t, f, "artifacts", "get", task.TaskID, "--dir", file)
	if code != errcode.ExitUsage || !strings.Contains(errs, file+" is not a directory\n") {
		t.Errorf("artifacts get into a file: exit code %d, %s, want %d", code, errs, errcode.ExitUsage)
	}
}

// TestSmokeTasks checks that the notes about smoke runs also concern tasks that wait for another attempt.
func TestSmokeTasks(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[]`)
	}))
	defer server.Close()
	c, err := client.New(t.Context(), client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	smokeTasks(t.Context(), c)
	if !strings.Contains(asked, string(client.RetryWait)) {
		t.Errorf("smokeTasks asks for %s, want also %s", asked, client.RetryWait)
	}
}

// TestWhyForTenants checks that only operators are advised to do what only operators may.
func TestWhyForTenants(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	for token, want := range map[string]string{
		ingesttest.Token: "codefleet workers, then start a worker that serves the task pool",
		ingesttest.Other: "ask an operator for a worker that serves the task pool",
	} {
		_, id, _ := commandWith(t, f, token, "submit", "--code", "print 1")
		code, out, errs := commandWith(t, f, token, "why", strings.TrimSpace(id))
		if code != 0 || !strings.Contains(out, want+"\n") {
			t.Errorf("why with %s: exit code %d, %s%s, want %q", token, code, out, errs, want)
		}
	}
}

// TestTimeLeft checks that the time to a task's run is rounded up to minutes.
func TestTimeLeft(t *testing.T) {
	const almost = -300 * time.Millisecond // the time that a submission took
	for d, want := range map[time.Duration]string{
		200 * 365 * 24 * time.Hour: "over 100 years", math.MaxInt64: "over 100 years",
		2*time.Hour + almost: "2h", 90*time.Minute + almost: "1h30m", 10*time.Minute + almost: "10m",
		26*time.Hour + almost: "1d2h", 24*time.Hour + almost: "1d", 168*time.Hour + almost: "7d",
		24*time.Hour + time.Minute + almost: "1d1m", 5 * time.Second: "5s",
	} {
		if got := timeLeft(d); got != want {
			t.Errorf("timeLeft(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestWatchedTasks checks that --watch lists the tasks again until Ctrl-C, which is not an error.
func TestWatchedTasks(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	if code, out, errs := command(t, f, "submit", "--code", "print 1"); code != 0 {
		t.Fatal(out, errs)
	}
	pr, pw := io.Pipe()
	signals := make(chan os.Signal, 1)
	a := &app{
		stdin: strings.NewReader(""), stdout: pw, stderr: io.Discard, env: os.Environ(), exit: os.Exit,
		signals: signals, watchInterval: time.Millisecond,
	}
	done := make(chan int, 1)
	go func() { done <- a.main(t.Context(), []string{"tasks", "--watch"}); pw.Close() }()
	headers := 0
	for lines := bufio.NewScanner(pr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "TASK ") {
			if headers++; headers == 2 {
				signals <- os.Interrupt
			}
		}
	}
	if code := <-done; code != 0 || headers < 2 {
		t.Errorf("tasks --watch: exit code %d after %d lists, want 0 after at least 2", code, headers)
	}
}

// TestWrongScheme checks the hint for an https address of a fleet that speaks http.
func TestWrongScheme(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	f.URL = strings.Replace(f.URL, "http:", "https:", 1)
	code, _, errs := command(t, f, "tasks")
	hint := "try: use the address " + strings.Replace(f.URL, "https:", "http:", 1) + "\n"
	if code != 3 || !strings.Contains(errs, "speaks HTTP, not HTTPS") || !strings.Contains(errs, hint) {
		t.Errorf("tasks at %s: exit code %d, %s, want 3, the right scheme and %q", f.URL, code, errs, hint)
	}
}

// TestPendingApprovalIsPrinted checks that run reports a call that waits for approval, even if its output is not a
// terminal.
func TestPendingApprovalIsPrinted(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	q := ingesttest.Question("who")
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	t.Setenv("CODEFLEET_URL", f.URL)
	t.Setenv("CODEFLEET_TOKEN", ingesttest.Token)
	a := &app{stdin: strings.NewReader(""), stdout: pw, stderr: pw, env: os.Environ(), exit: os.Exit}
	done := make(chan int, 1)
	go func() { done <- a.main(t.Context(), []string{"run", "--code", "ask who"}); pw.Close() }()
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(text.String(), "codefleet approve") {
		n, err := pr.Read(buf)
		if err != nil {
			t.Fatalf("run ended with %v and output %s, want a note about the call", err, text.String())
		}
		text.Write(buf[:n])
	}
	if !strings.Contains(text.String(), "note: crm/drop waits for approval (call "+q.Call+"): codefleet approve ") {
		t.Errorf("run prints %s, want a note about the call %s", text.String(), q.Call)
	}
	_, id, _ := strings.Cut(text.String(), "codefleet approve ")
	if code, out, errs := command(t, f, "approve", strings.Fields(id)[0]); code != 0 {
		t.Errorf("approve: exit code %d, want 0: %s%s", code, out, errs)
	}
	if code := <-done; code != 0 {
		t.Errorf("run: exit code %d after the approval, want 0", code)
	}
}

// TestRunWaitsForAnotherRun checks that a run without a fleet waits while another run uses the data directory.
func TestRunWaitsForAnotherRun(t *testing.T) {
	for _, name := range []string{"CODEFLEET_URL", "CODEFLEET_FLEET"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	var errs bytes.Buffer
	r := &foreground{a: &app{stderr: &errs}, line: &progress{}}
	tries := 0
	err := r.startWhenFree(t.Context(), t.TempDir(), func() error {
		if tries++; tries < 3 {
			return up.ErrInUse
		}
		return nil
	})
	if err != nil || tries != 3 || strings.Count(errs.String(), "note: waiting for") != 1 {
		t.Errorf("startWhenFree = %v after %d tries with notes %q, want nil after 3 tries with one note", err, tries,
			errs.String())
	}
}
