package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/schemas"
)

// hostile contains what terminals act on: sequences that set the title and the clipboard, a C1 sequence, sequences that
// erase the line above, DEL and backspace, and a change of the text's direction.
const hostile = "\x1b]0;t\a\x1b]52;c;YQ==\a\u009b31m\x1b[1A\x1b[2K\x7f\b\u202e"

// TestHostileTextOnATerminal checks that commands print a fleet's hostile text to a terminal so that it cannot control
// the terminal. A file gets the unchanged text.
func TestHostileTextOnATerminal(t *testing.T) {
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	q := string(quoted)
	result := fmt.Sprintf(`{"task_id":%s,"status":"succeeded","output":%s,"stderr":%s,"result":%s,`+
		`"generated_by":"llm","code":%s,"tools":{"selected":[%s]},`+
		`"guardrails":[{"level":%s,"message":%s}],"egress":[{"host":%s}],`+
		`"error":{"code":"x","message":%s,"cause":%s,"hint":%s},"workspace":{"conflicts":[%s]}}`,
		q, q, q, q, q, q, q, q, q, q, q, q, q)
	record := fmt.Sprintf(`{"task_id":%s,"status":"succeeded","description":%s,"workspace":%s,"pool":%s,"worker":%s,`+
		`"result":%s}`, q, q, q, q, q, result)
	fleet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			w.Header().Set("Content-Type", "text/event-stream")
			for i, stream := range []string{"stdout", "stderr", ""} {
				fmt.Fprintf(w, "id: %d\nevent: progress\ndata: {\"stage\":%s,\"stream\":%q,\"text\":%s}\n\n",
					i+1, q, stream, q)
			}
			fmt.Fprintf(w, "event: record\ndata: %s\n\n", record)
		case r.URL.Path == "/v1/tasks" && r.Method == http.MethodGet:
			fmt.Fprintf(w, "[%s]", record)
		case strings.HasPrefix(r.URL.Path, "/v1/tasks"):
			_, _ = io.WriteString(w, record)
		case strings.Contains(r.URL.Path, "/files/"):
			_, _ = io.WriteString(w, hostile+"\xff\x9b")
		default:
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, `{"code":%s,"message":%s,"hint":%s}`, q, q, q)
		}
	}))
	defer fleet.Close()
	t.Setenv("CODEFLEET_URL", fleet.URL)
	t.Setenv("CODEFLEET_TOKEN", "t")
	t.Setenv("TERM", "xterm")
	for _, command := range []string{
		"result x", "result x -o json", "logs x", "logs x -o json", "run --code 1", "status x", "status x -o json",
		"tasks", "tasks -o json", "workspace cat f", "dead", "audit", "approvals",
		"workspace log", "tools", "state get",
	} {
		t.Run(command, func(t *testing.T) {
			shown := onTerminal(t, func(terminal *os.File) {
				a := &app{stdout: onScreen(terminal), stderr: onScreen(terminal), env: os.Environ()}
				a.main(t.Context(), strings.Fields(command))
			})
			withoutOwnSequences := strings.NewReplacer("\r\x1b[K", "", "\r", "",
				"\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[0m", "")
			lines := withoutOwnSequences.Replace(shown)
			if lines == "" || !utf8.ValidString(lines) || strings.ContainsAny(lines, "\x1b\a\u009b\x7f\b\u202e") {
				t.Errorf("terminal got %q, want UTF-8 text without hostile characters", shown)
			}
		})
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := &app{stdout: onScreen(file), stderr: io.Discard, env: os.Environ()}
	a.main(t.Context(), []string{"result", "x"})
	if got, err := os.ReadFile(file.Name()); err != nil || !strings.HasPrefix(string(got), hostile) {
		t.Errorf("file got %q, %v, want text that begins with %q", got, err, hostile)
	}
}

// TestCarriageReturns prints names and errors with carriage returns, after which a terminal would overwrite the start
// of the line.
func TestCarriageReturns(t *testing.T) {
	const spoof = "a\r\r\nsucceeded in 1 ms"
	var out, errs strings.Builder
	a := &app{stdout: &out, stderr: &errs}
	row(&out, spoof, spoof)
	printLines(&out, "artifact", []string{spoof})
	a.showError(client.Result{Status: "failed", Error: &schemas.Error{Message: spoof, Cause: spoof, Hint: spoof}})
	got := out.String() + errs.String()
	if strings.Contains(got, "\r") || strings.Count(got, "succeeded in 1 ms") != 6 {
		t.Errorf("printed %q, want 6 texts without carriage returns", got)
	}
}

// onTerminal returns what fn writes to a new pseudo terminal.
func onTerminal(t *testing.T, fn func(terminal *os.File)) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The terminal is closed when all has been read: the kernel may report the end to a reader that waits before it has
	// passed on the last characters.
	const end = "\x00end\x00"
	all := make(chan string)
	go func() {
		var data []byte
		buf := make([]byte, 4096)
		for !bytes.HasSuffix(data, []byte(end)) {
			n, err := master.Read(buf)
			if data = append(data, buf[:n]...); err != nil {
				t.Errorf("read from the terminal: %v", err)
				break
			}
		}
		all <- strings.TrimSuffix(string(data), end)
	}()
	fn(terminal)
	if _, err := terminal.WriteString(end); err != nil {
		t.Error(err)
	}
	shown := <-all
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	return shown
}

// TestScreen checks that characters that are written in parts are printed whole.
func TestScreen(t *testing.T) {
	shown := onTerminal(t, func(terminal *os.File) {
		w := onScreen(terminal)
		for _, c := range []byte("é\u009b漢👩\x1b") {
			if n, err := w.Write([]byte{c}); n != 1 || err != nil {
				t.Errorf("Write(%#x) = %d, %v, want 1, nil", c, n, err)
			}
		}
	})
	if want := "é<U+009B>漢👩<U+001B>"; shown != want {
		t.Errorf("terminal got %q, want %q", shown, want)
	}
}

// TestConcurrentWritesToScreen checks that lines from several goroutines are not mixed.
func TestConcurrentWritesToScreen(t *testing.T) {
	const line, writers, lines = "漢é\n", 4, 100
	shown := onTerminal(t, func(terminal *os.File) {
		w := onScreen(terminal)
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range lines {
					fmt.Fprint(w, line)
				}
			})
		}
		all.Wait()
	})
	if want := strings.Repeat(line, writers*lines); strings.ReplaceAll(shown, "\r", "") != want {
		t.Errorf("terminal got %q, want %d lines %q", shown, writers*lines, line)
	}
}

// TestIndentationIsBounded checks that a deeply nested result is not printed with indentation.
func TestIndentationIsBounded(t *testing.T) {
	deep := json.RawMessage(strings.Repeat("[", 9990) + strings.Repeat("]", 9990))
	var b strings.Builder
	if err := (&app{stdout: &b, output: "json"}).print(map[string]any{"result": deep}, nil); err != nil {
		t.Fatal(err)
	}
	if b.Len() > maxIndented || !json.Valid([]byte(b.String())) {
		t.Errorf("%d bytes of JSON are printed as %d bytes, want valid JSON of at most %d",
			len(deep), b.Len(), maxIndented)
	}
}

// stopWriter calls stop before it writes to w.
type stopWriter struct {
	w    io.Writer
	stop func()
}

func (w stopWriter) Write(p []byte) (int, error) {
	w.stop()
	return w.w.Write(p)
}

// TestFirstLineOfUp checks that `codefleet up` removes its progress from a terminal before it prints the addresses.
func TestFirstLineOfUp(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"CODEFLEET_URL", "CODEFLEET_FLEET", "OPENAI_API_KEY"} {
		t.Setenv(name, "")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	shown := onTerminal(t, func(terminal *os.File) {
		a := &app{
			stdout: stopWriter{onScreen(terminal), stop}, stderr: onScreen(terminal), env: os.Environ(), exit: os.Exit,
			worker: func(accept, _ context.Context, p assembly.WorkerOptions) error {
				if _, err := p.Join(accept); err != nil {
					return err
				}
				p.Ready()
				<-accept.Done()
				return nil
			},
		}
		args := strings.Fields("up --data . --http 127.0.0.1:0 --nats 127.0.0.1:0 --s3 127.0.0.1:0")
		if code := a.main(ctx, args); code != 0 {
			t.Errorf("up: exit code %d, want 0", code)
		}
	})
	if !strings.Contains(shown, " …\r\x1b[Khttp  ") {
		t.Errorf("up shows %q, want its progress, and then the addresses on an empty line", shown)
	}
}

// TestColours checks that a terminal gets statuses and errors in colour, and that NO_COLOR, TERM=dumb, --color never
// and a pipe do not.
func TestColours(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Setenv("CODEFLEET_URL", f.URL)
	t.Setenv("CODEFLEET_TOKEN", ingesttest.Token)
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	run := func(args string) string {
		return onTerminal(t, func(terminal *os.File) {
			a := &app{stdout: onScreen(terminal), stderr: onScreen(terminal), env: os.Environ(), exit: os.Exit}
			a.main(t.Context(), strings.Split(args, "|"))
		})
	}
	id := runTask(t, f, "print 1").TaskID
	want := map[string]string{
		"run|--code|fail ü":                "\x1b[31mfailed\x1b[0m in ",
		"run|--code|print \x1b[32mfake":    "\x1b[32msucceeded\x1b[0m in ",
		"tasks":                            "  \x1b[31mfailed\x1b[0m     ",
		"status|" + id:                     "status     \x1b[32msucceeded\x1b[0m\r\n",
		"status|x":                         "\x1b[31mcodefleet:\x1b[0m the fleet refused",
		"tasks|--color|never|--status|bad": "codefleet: --status bad",
	}
	for _, args := range slices.Sorted(maps.Keys(want)) { // run comes before tasks
		shown := run(args)
		if text := want[args]; !strings.Contains(shown, text) || strings.Contains(shown, "\x1b[32mfake") {
			t.Errorf("%q shows %q, want %q", args, shown, text)
		}
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if shown := run("tasks"); strings.Contains(shown, "\x1b") || !strings.Contains(shown, "failed") {
				t.Errorf("tasks shows %q, want no colours", shown)
			}
		})
	}
	if _, out, _ := command(t, f, "tasks"); strings.Contains(out, "\x1b") {
		t.Errorf("tasks without a terminal prints %q, want no colours", out)
	}
	if _, out, _ := command(t, f, "tasks", "--color", "always"); !strings.Contains(out, "\x1b[31mfailed\x1b[0m") {
		t.Errorf("tasks --color always prints %q, want colours", out)
	}
	if code, _, errs := command(t, f, "tasks", "--color", "blue"); code != 2 {
		t.Errorf("tasks --color blue: exit code %d, want 2: %s", code, errs)
	}
}

// TestNoteReplacesProgressLine checks that the note of a task that is not due yet does not begin in the progress line.
func TestNoteReplacesProgressLine(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	t.Setenv("CODEFLEET_URL", f.URL)
	t.Setenv("CODEFLEET_TOKEN", ingesttest.Token)
	t.Setenv("TERM", "xterm")
	shown := onTerminal(t, func(terminal *os.File) {
		a := &app{stdout: onScreen(terminal), stderr: onScreen(terminal), env: os.Environ()}
		a.main(t.Context(), []string{"run", "--at", "+2s", "--code", "print now"})
	})
	if !strings.Contains(shown, "\r\x1b[Knote: the task waits until 20") {
		t.Errorf("run --at shows %q, want the note in the place of the progress line", shown)
	}
}
