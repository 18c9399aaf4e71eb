package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/codefleet/codefleet/internal/errcode"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// interruptible returns a context that the first signal cancels. A second signal ends the process. So does the first
// one while the command reads its input. The returned function releases the context.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		if !a.signalled(done) {
			return
		}
		cancel(errInterrupted)
		if reading.Load() > 0 { // nothing has begun that would have to end
			a.exit(a.report(errInterrupted))
		}
		if a.signalled(done) {
			a.exit(errcode.ExitKilled)
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}

// signalled waits for a signal and returns true, or returns false once done is closed. While the user's editor runs, it
// ignores interrupts: Ctrl-C in the editor is meant for the editor.
func (a *app) signalled(done <-chan struct{}) bool {
	for {
		select {
		case s := <-a.signals:
			if s != os.Interrupt || !a.editing.Load() {
				return true
			}
		case <-done:
			return false
		}
	}
}

// interruptibly calls fn, which reads a command's input, and returns errInterrupted if a signal arrived meanwhile.
func (a *app) interruptibly(ctx context.Context, fn func() error) error {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	if err := fn(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// reading is how many reads of files, pipes and answers are in progress. A pipe may have no data for a long time,
// and a read of it cannot be interrupted.
var reading atomic.Int32

// countReading counts a read in reading until the returned function is called.
func countReading() (done func()) {
	reading.Add(1)
	return func() { reading.Add(-1) }
}

// inputReader counts its reads in reading.
type inputReader struct{ io.Reader }

func (r inputReader) Read(p []byte) (int, error) {
	defer countReading()()
	return r.Reader.Read(p)
}
