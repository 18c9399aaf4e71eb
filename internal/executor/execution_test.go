package executor

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

// TestMessagesKeepTheirOrder checks that the runner reads the messages of an execution in the order in which they were
// sent: it ignores the cancellation of a program that it does not have yet.
func TestMessagesKeepTheirOrder(t *testing.T) {
	b := &stubbornBox{}
	b.fromHost, b.stdin = io.Pipe()
	e := &execution{runner: &runnerProcess{session: b}}
	const count = 200
	var want, got []uint64
	for id := range uint64(count) {
		want = append(want, id+1)
		e.send(runner.ConnMessage{Type: "eof", ID: id + 1}, nil) // one that Read accepts, too
	}
	for range count {
		f, err := runner.Read(b.fromHost)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.ID)
	}
	e.work.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("the runner read the messages %v, want %v", got, want)
	}
}

// TestWarningsOfTheParser checks that what the interpreter writes while it parses a program is output of the program,
// although the check is outstanding, and that the program cannot do anything else yet.
func TestWarningsOfTheParser(t *testing.T) {
	const warning = "program.py:1: SyntaxWarning: invalid escape sequence '\\d'\n"
	e := &execution{limits: Limits{}.OrDefaults(), facts: true}
	err := e.handle(t.Context(), runner.Frame{Type: "out", Stream: "stderr", Body: []byte(warning)})
	if v := e.newVerdict(); err != nil || v.Stderr != warning || e.started {
		t.Errorf("handle(out) before the check = %v, stderr %q, started %v; want nil, %q, false",
			err, v.Stderr, e.started, warning)
	}
	for _, kind := range []string{"call", "called"} {
		if err := e.handle(t.Context(), runner.Frame{Type: kind, Server: "s", Tool: "t"}); err == nil {
			t.Errorf("handle(%s) before the check = nil, want an error", kind)
		}
	}
}

// TestStoppedProgramIsNotChecked checks that the facts of a program that was stopped do not reach the hook Check, whose
// answer could begin it.
func TestStoppedProgramIsNotChecked(t *testing.T) {
	b := &stubbornBox{}
	b.fromHost, b.stdin = io.Pipe()
	checks := 0
	e := &execution{runner: &runnerProcess{session: b}, program: Program{TaskID: "x"}, facts: true}
	e.hooks.Check = func(Facts) error { checks++; return nil }
	e.stop(Timeout)
	f, err := runner.Read(b.fromHost) // the cancellation, in which Read knows no type
	if !errors.Is(err, runner.ErrFrame) {
		t.Errorf("Read = %+v, %v, want an error", f, err)
	}
	if err := e.handle(t.Context(), runner.Frame{Type: "checked", Body: []byte("{}")}); err != nil || checks != 0 {
		t.Errorf("handle(checked) after the timeout = %v with %d checks, want nil with none", err, checks)
	}
	if err := e.handle(t.Context(), runner.Frame{Type: "out", Stream: "stdout", Body: []byte("a")}); err != nil {
		t.Errorf("handle(out) of a program that is ending = %v, want nil", err)
	}
	if err := b.fromHost.Close(); err != nil { // anything that is still being written
		t.Fatal(err)
	}
	e.work.Wait()
}
