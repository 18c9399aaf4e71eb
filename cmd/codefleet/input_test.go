package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

// The first signal ends a command that reads a pipe without data: nothing has begun.
func TestReadingIsInterruptible(t *testing.T) {
	for _, args := range []string{"run -", "run --file -", "workflow run -", "privacy scan -"} {
		read, write := io.Pipe()
		testInterrupt(t, args, read, write, func() error {
			_, err := write.Write([]byte("#"))
			return err
		})
	}
}

// testInterrupt runs a command, which reads from an end of a pipe, and sends it a signal once reads has returned.
func testInterrupt(t *testing.T, args string, stdin io.Reader, write io.Closer, reads func() error) {
	t.Helper()
	var (
		mu   sync.Mutex // a pipe's end does not order the two reports for the race detector
		errs bytes.Buffer
	)
	stderr := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return errs.Write(p)
	})
	signals, exited := make(chan os.Signal, 2), make(chan int, 2)
	a := &app{
		stdin: stdin, stdout: io.Discard, stderr: stderr, env: os.Environ(), signals: signals,
		exit: func(code int) { exited <- code; write.Close() },
	}
	done, began := make(chan struct{}), make(chan error, 1)
	go func() { a.main(t.Context(), strings.Split(args, " ")); close(done) }()
	go func() { began <- reads() }()
	select {
	case err := <-began:
		if err != nil {
			t.Fatal(err)
		}
	case <-done:
		t.Fatalf("%s ends before it reads: %s", args, &errs)
	}
	signals <- syscall.SIGTERM
	select {
	case code := <-exited:
		if code != errcode.ExitStopped {
			t.Errorf("%s: exit code after a signal = %d, want %d", args, code, errcode.ExitStopped)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s goes on after a signal", args)
	}
	<-done
	if !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("%s prints %q, want interrupted", args, errs.String())
	}
}

// TestInterruptInTheEditor checks that Ctrl-C in the editor of `rerun --edit` ends neither the editor nor the command.
func TestInterruptInTheEditor(t *testing.T) {
	script := filepath.Join(t.TempDir(), "edit")
	const text = `echo started >&2; read line; echo '{"code": "2"}' > "$1"`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer keys.Close()
	signals := make(chan os.Signal)
	a := &app{
		stdin: stdin, env: []string{"EDITOR=sh " + script}, signals: signals,
		exit: func(code int) { t.Errorf("the process ends with exit code %d, want that it goes on", code) },
		stderr: writerFunc(func(p []byte) (int, error) { // the editor has started
			signals <- os.Interrupt
			signals <- os.Interrupt
			_, err := keys.WriteString("\n")
			return len(p), err
		}),
	}
	ctx, stop := a.interruptible(t.Context())
	defer stop()
	s := client.Submission{Task: client.Task{Code: "1"}}
	if err := a.edit(ctx, &s); err != nil || s.Code != "2" {
		t.Errorf("edit = %v with the code %q, want the edited code 2", err, s.Code)
	}
}

// TestInterruptOfACancellation checks that a second signal ends `run` while the fleet does not answer its request to
// cancel the task.
func TestInterruptOfACancellation(t *testing.T) {
	signals := make(chan os.Signal, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"task_id": "task", "status": "running"}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		signals <- os.Interrupt // during the request for events, and then during the one that cancels the task
		<-r.Context().Done()
	}))
	defer server.Close()
	t.Setenv("CODEFLEET_URL", server.URL)
	t.Setenv("CODEFLEET_TOKEN", "x")
	var errs bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, env: os.Environ(), signals: signals,
		exit: os.Exit,
	}
	code := a.main(t.Context(), []string{"run", "--code", "1"})
	if code != errcode.ExitStopped || !strings.Contains(errs.String(), "the fleet has not confirmed") ||
		!strings.Contains(errs.String(), "try: codefleet cancel task") {
		t.Errorf("run: exit code %d, %s; want %d, and a hint to cancel the task", code, &errs, errcode.ExitStopped)
	}
}

// TestInterruptOfToolsGenerate checks that a signal interrupts `tools generate`, instead of making each server fail.
func TestInterruptOfToolsGenerate(t *testing.T) {
	t.Chdir(t.TempDir())
	signals := make(chan os.Signal, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case signals <- os.Interrupt:
		default:
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	settings := fmt.Sprintf("mcp_servers: [{name: a, url: %q}, {name: b, url: %[1]q}]", server.URL)
	if err := os.WriteFile("config.yaml", []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, env: []string{"CODEFLEET_DATA=data"},
		signals: signals, exit: func(int) {},
	}
	code := a.main(t.Context(), []string{"tools", "generate"})
	if want := "codefleet: interrupted\n"; code != errcode.ExitStopped || !strings.HasSuffix(errs.String(), want) {
		t.Errorf("tools generate: exit code %d, %q; want %d, %q", code, &errs, errcode.ExitStopped, want)
	}
}

// A command whose task is not accepted soon says what it waits for.
func TestSlowSubmission(t *testing.T) {
	noted := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case note := <-noted:
			if !strings.HasPrefix(note, "note: the fleet has not accepted the task yet") {
				t.Errorf("the command prints %q, want a note", note)
			}
		case <-time.After(time.Minute):
			t.Error("the command waits in silence")
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	t.Setenv("CODEFLEET_URL", server.URL)
	t.Setenv("CODEFLEET_TOKEN", "x")
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, env: os.Environ(), exit: os.Exit,
		stderr: writerFunc(func(p []byte) (int, error) {
			select {
			case noted <- string(p):
			default:
			}
			return len(p), nil
		}),
	}
	if code := a.main(t.Context(), []string{"run", "--code", "1"}); code != errcode.ExitUnreachable {
		t.Errorf("exit code = %d, want %d", code, errcode.ExitUnreachable)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]string{
		"90d": "2026-04-02T03:04:05Z", "12h": "2026-01-02T15:04:05Z", "2027-01-02T03:04:05Z": "2027-01-02T03:04:05Z",
		"": "0001-01-01T00:00:00Z",
	} {
		if got, err := expiry(in, now); err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("expiry(%q) = %s, %v, want %s", in, got.Format(time.RFC3339), err, want)
		}
	}
	for _, in := range []string{"3000000d", "0d", "-1h", "soon"} {
		if got, err := expiry(in, now); err == nil {
			t.Errorf("expiry(%q) = %s, want an error", in, got)
		}
	}
}

// A file that replaces another one of a submission replaces all of it: files with text have no other member.
func TestRerunReplacesFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("image.png", []byte{0xff, 0xd8}, 0o600); err != nil {
		t.Fatal(err)
	}
	text := "x"
	s := &client.Submission{Task: client.Task{
		Code: "1", Files: []client.File{{Name: "notes.txt", Text: &text}, {Name: "b.txt", Text: &text}},
	}}
	if err := (&taskFlags{with: []string{"image.png"}}).change(s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Files) != 1 || s.Files[0].Name != "image.png" || s.Files[0].Text != nil || s.Files[0].Base64 == nil {
		t.Errorf("files = %+v, want image.png with its bytes only", s.Files)
	}
}

// A variable and a limit are added to the others of a submission, or replace their values.
func TestRerunMergesVariablesAndLimits(t *testing.T) {
	s := &client.Submission{Task: client.Task{
		Code: "1", Env: map[string]string{"A": "1", "B": "2"}, Limits: &client.Limits{TimeoutS: 5, MemoryMB: 64},
	}}
	if err := (&taskFlags{env: []string{"B=3", "C=4"}, memory: 128}).change(s, nil); err != nil {
		t.Fatal(err)
	}
	want := client.Task{
		Code: "1", Env: map[string]string{"A": "1", "B": "3", "C": "4"},
		Limits: &client.Limits{TimeoutS: 5, MemoryMB: 128},
	}
	if diff := cmp.Diff(want, s.Task); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
}
