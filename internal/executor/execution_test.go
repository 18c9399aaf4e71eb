package executor

import (
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
