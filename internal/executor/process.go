package executor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	wire "github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	readyWait   = 30 * time.Second // for a runner to clean up after a program
	destroyWait = time.Minute      // for a box to go away
	stderrTail  = 8 << 10          // bytes kept of what a runner complains about
)

// A runner is the Python process inside one box, ready for one program at a time. Its reader
// goroutine owns the session; kill makes it end, and done tells that it has.
type runner struct {
	box     Box
	session Session
	guest   Guest
	python  string          // its version
	frames  chan wire.Frame // closed after the last one
	killed  chan struct{}   // closed when the box is about to be destroyed
	done    chan struct{}   // closed when nothing of the runner is left; guards code and err
	code    int             // exit code
	err     error           // why frames ended, nil at the end of the stream
	stderr  tail
	writing sync.Mutex // held for a whole message
	busy    bool       // has not said ready since its last program; owned by run
	kill    func() error
}

// runnerEnv is the environment that a box must be created with (Spec.Env).
func runnerEnv() []string { return wire.Env() }

// startRunner starts the runner in the box and returns when it has a child waiting for a program.
// preload names modules that each program finds imported already. After an error the box is
// destroyed.
func startRunner(ctx context.Context, box Box, preload []string, memo *compiled) (*runner, error) {
	r := &runner{
		box:    box,
		guest:  DefaultGuest(),
		frames: make(chan wire.Frame, 16),
		killed: make(chan struct{}),
		done:   make(chan struct{}),
	}
	r.kill = sync.OnceValue(r.destroy)
	if g, ok := box.(Guester); ok {
		r.guest = g.Guest()
	}
	session, err := box.Exec(ctx, wire.Argv(r.guest.Python))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start runner: %w", err), r.kill())
	}
	r.session = session
	go r.read() // ends with the box; close waits for it
	if err := r.hello(ctx, preload, memo); err != nil {
		if closing := r.close(context.WithoutCancel(ctx)); closing != nil {
			return nil, errors.Join(err, closing)
		}
		return nil, fmt.Errorf("%w%s", err, r.stderr.note())
	}
	return r, nil
}

// hello sends the runner itself and waits for its first word.
func (r *runner) hello(ctx context.Context, preload []string, memo *compiled) error {
	boot := wire.Source(wire.Boot{
		Workspace: r.guest.Workspace,
		Catalogue: r.guest.Catalogue,
		Scratch:   r.guest.Scratch,
		Stale:     r.guest.Stale,
		OOM:       r.guest.OOM,
		Counts:    r.guest.Counts,
		Split:     r.guest.Split,
		UID:       r.guest.UID,
		Preload:   append([]string{}, preload...),
		Compiled:  memo.get(),
	})
	var writer sync.WaitGroup
	writer.Go(func() { _, _ = r.session.Stdin().Write(boot) }) // an error shows as the end of the frames
	defer writer.Wait()
	select {
	case f, ok := <-r.frames:
		switch {
		case !ok:
			<-r.done
			return fmt.Errorf("runner ended with code %d before it was ready (%w)", r.code, cmpErr(r.err, io.EOF))
		case f.Type != "hello":
			_ = r.kill() // close tells
			return fmt.Errorf("runner said %q before hello", f.Type)
		case f.Version != wire.Version:
			_ = r.kill() // close tells
			return fmt.Errorf("runner speaks version %d, not %d", f.Version, wire.Version)
		}
		r.python = f.Python
		if len(f.Body) > 0 {
			memo.set(wire.Compiled{Interpreter: f.Interpreter, Code: f.Body})
		}
		return nil
	case <-ctx.Done():
		_ = r.kill() // close tells
		return fmt.Errorf("wait for runner: %w", context.Cause(ctx))
	}
}

// compiled remembers the runner as a box has compiled it, for those made after it: a tenth of the time
// to make one. What a box says here it says before it has run any program.
type compiled struct {
	mu   sync.Mutex
	last wire.Compiled
}

func (c *compiled) get() wire.Compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *compiled) set(last wire.Compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = last
}

// alive reports whether the runner can take a program, now or as soon as it has cleaned up.
func (r *runner) alive() bool {
	select {
	case <-r.killed:
		return false
	case <-r.done:
		return false
	default:
		return true
	}
}

// destroyed reports whether we have ended the box.
func (r *runner) destroyed() bool {
	select {
	case <-r.killed:
		return true
	default:
		return false
	}
}

// close destroys the box and waits until nothing of the runner is left. It may be called again.
func (r *runner) close(ctx context.Context) error {
	err := r.kill()
	if r.session == nil {
		return err
	}
	select {
	case <-r.done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("wait for runner to end: %w", context.Cause(ctx)))
	}
}

func (r *runner) destroy() error {
	close(r.killed)
	ctx, cancel := context.WithTimeout(context.Background(), destroyWait)
	defer cancel()
	if err := r.box.Destroy(ctx); err != nil {
		return fmt.Errorf("destroy box: %w", err)
	}
	return nil
}

// read hands on what the runner says until its end. What is not of the protocol ends the box.
func (r *runner) read() {
	var complaints sync.WaitGroup
	complaints.Go(func() { _, _ = io.Copy(&r.stderr, r.session.Stderr()) })
	in := bufio.NewReaderSize(r.session.Stdout(), 64<<10)
	for {
		f, err := wire.Read(in)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			break
		}
		select {
		case r.frames <- f:
		case <-r.killed: // nobody may be there to take it
		}
	}
	if errors.Is(r.err, wire.ErrFrame) {
		_ = r.kill() // close tells
	}
	_, _ = io.Copy(io.Discard, in)
	_ = r.session.Stdin().Close()
	complaints.Wait()
	code, err := r.session.Wait()
	r.code, r.err = code, cmpErr(r.err, err)
	close(r.done)
	close(r.frames)
}

func (r *runner) send(header any, body []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return wire.Write(r.session.Stdin(), header, body)
}

// awaitReady waits until the runner has cleaned up after its last program.
func (r *runner) awaitReady(ctx context.Context) error {
	if !r.alive() {
		return errors.New("the box is gone" + r.stderr.note())
	}
	if !r.busy {
		return nil
	}
	timer := time.NewTimer(readyWait)
	defer timer.Stop()
	select {
	case f, ok := <-r.frames:
		if !ok {
			return fmt.Errorf("runner ended with code %d%s", r.code, r.stderr.note())
		}
		if f.Type != "ready" {
			return fmt.Errorf("runner said %q before ready", f.Type)
		}
		r.busy = false
		return nil
	case <-timer.C:
		return fmt.Errorf("runner is not ready after %s", readyWait)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > stderrTail {
		t.text = append([]byte(nil), t.text[len(t.text)-stderrTail:]...)
	}
	return len(p), nil
}

// note is the text as the end of an error's, or nothing.
func (t *tail) note() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "\uFFFD")); text != "" {
		return ": " + text
	}
	return ""
}
