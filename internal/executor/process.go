package executor

import (
	"bufio"
	"cmp"
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
	from    origin
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

	// owned by start:
	preload   []string
	imported  int    // of preload, the last one perhaps not yet
	importing string // that one; empty: it is
}

// runnerEnv is the environment that a box must be created with (Spec.Env).
func runnerEnv() []string { return wire.Env() }

// A template is what an environment's first boxes give to those made after them, taken before they ran
// any program. The zero value is empty.
type template struct {
	compiled compiled
	snapshot snapshot
}

// startRunner starts the runner in the box and returns when it has a child waiting for a program.
// preload names modules that each program finds imported already. After an error the box is
// destroyed; when that is a *snapshotError, another box may fare better.
func startRunner(ctx context.Context, box Box, preload []string, template *template) (*runner, error) {
	from := template.snapshot.origin(box, preload)
	if from != restored {
		return start(ctx, box, preload, template, from)
	}
	limited, cancel := context.WithTimeout(ctx, snapshotWait)
	defer cancel()
	r, err := start(limited, box, preload, template, from)
	if err != nil {
		err = template.snapshot.blame(ctx, err)
	}
	return r, err
}

func start(ctx context.Context, box Box, preload []string, template *template, from origin) (*runner, error) {
	r := &runner{
		box:     box,
		from:    from,
		preload: preload,
		guest:   DefaultGuest(),
		frames:  make(chan wire.Frame, 16),
		killed:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	r.kill = sync.OnceValue(r.destroy)
	if g, ok := box.(GuestReporter); ok {
		r.guest = g.Guest()
	}
	var err error
	argv := wire.Argv(r.guest.Python)
	if saver, ok := box.(Snapshotter); ok && from == restored {
		r.session, err = saver.Restore(ctx, template.snapshot.dir, argv)
	} else {
		r.session, err = box.Exec(ctx, argv)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start runner: %w", err), r.kill())
	}
	go r.read() // ends with the box; close waits for it
	if err := r.greet(ctx, template); err != nil {
		closing := r.close(context.WithoutCancel(ctx)) // nothing is added to stderr any more, if it could be
		return nil, errors.Join(r.explain(err), closing)
	}
	return r, nil
}

// explain adds what the runner complained about to why it is not ready, and whose doing that is.
func (r *runner) explain(err error) error {
	err = fmt.Errorf("%w%s", err, r.stderr.note())
	if r.importing == "" {
		return err
	}
	return &HostError{
		Reason: ReasonPreload, Err: fmt.Errorf("preload of %s: %w", r.importing, err),
		Fix: "correct execution.preload or pools.NAME.preload, or add the module to the requirements or the image of the pool",
	}
}

// greet sends the runner itself, where it is not restored, and waits until it is ready.
func (r *runner) greet(ctx context.Context, template *template) error {
	if r.from != restored {
		boot := wire.Source(wire.Boot{
			Workspace: r.guest.Workspace,
			Catalogue: r.guest.Catalogue,
			Scratch:   r.guest.Scratch,
			Stale:     r.guest.Stale,
			OOM:       r.guest.OOM,
			Counts:    r.guest.Counts,
			Split:     r.guest.Split,
			UID:       r.guest.UID,
			Preload:   append([]string{}, r.preload...),
			Pause:     r.from == saved,
			Compiled:  template.compiled.get(),
		})
		var writer sync.WaitGroup
		writer.Go(func() { _, _ = r.session.Stdin().Write(boot) }) // an error shows as the end of the frames
		defer writer.Wait()
	}
	if r.from == saved {
		if _, err := r.hear(ctx, "warm", template); err != nil {
			return err
		}
		if err := template.snapshot.save(ctx, r.box); err != nil {
			_ = r.kill() // close tells
			return err
		}
	}
	if r.from != booted {
		_ = r.send(wire.Signal{Type: "resume"}, nil) // as above
	}
	f, err := r.hear(ctx, "hello", template)
	r.python = f.Python
	return err
}

// hear waits for what the runner says before its first program. After an error the box is about to be
// destroyed.
func (r *runner) hear(ctx context.Context, want string, template *template) (wire.Frame, error) {
	select {
	case f, ok := <-r.frames:
		switch {
		case !ok:
			<-r.done
			return f, fmt.Errorf("runner ended with code %d before it was ready (%w)", r.code, cmp.Or(r.err, io.EOF))
		case f.Type == "preload" && r.imported < len(r.preload):
			r.imported, r.importing = r.imported+1, r.preload[r.imported]
			return r.hear(ctx, want, template)
		case f.Type != want:
			_ = r.kill() // close tells
			return f, fmt.Errorf("runner said %q before %s", f.Type, want)
		case f.Version != wire.Version:
			_ = r.kill() // close tells
			return f, fmt.Errorf("runner speaks version %d, not %d", f.Version, wire.Version)
		}
		r.importing = ""
		if len(f.Body) > 0 {
			template.compiled.set(wire.Compiled{Interpreter: f.Interpreter, Code: f.Body})
		}
		return f, nil
	case <-ctx.Done():
		_ = r.kill() // close tells
		return wire.Frame{}, fmt.Errorf("wait for runner: %w", context.Cause(ctx))
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
	r.code, r.err = code, cmp.Or(r.err, err)
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
	select {
	case f, ok := <-r.frames: // as most often: a program is not sent the moment the one before it ends
		return r.ready(f, ok)
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("runner is not ready after %s", readyWait))
	defer cancel()
	release := context.AfterFunc(ctx, func() { _ = r.kill() }) // a runner that takes nothing more must not hold it up
	_ = r.send(wire.Signal{Type: "next"}, nil)                 // a runner that is gone ends the frames
	if !release() {
		return context.Cause(ctx)
	}
	select {
	case f, ok := <-r.frames:
		return r.ready(f, ok)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ready takes what the runner said after a program, ok unless it has ended.
func (r *runner) ready(f wire.Frame, ok bool) error {
	if !ok {
		return fmt.Errorf("runner ended with code %d%s", r.code, r.stderr.note())
	}
	if f.Type != "ready" {
		return fmt.Errorf("runner said %q before ready", f.Type)
	}
	r.busy = false
	return nil
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
