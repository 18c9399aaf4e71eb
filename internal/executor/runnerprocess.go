package executor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/executor/runner"
)

const (
	readyTimeout  = 30 * time.Second // time for a runner to clean up after a program
	destroyWait   = time.Minute      // time for a driver to destroy a box
	maxStderrTail = 8 << 10          // bytes of a runner's standard error that are kept
)

// A runnerProcess is the Python process inside one box; it runs one program at a time. A goroutine (readFrames) reads
// what the process sends, and waits for its end.
type runnerProcess struct {
	box     Box
	boot    bootMode
	session Session
	guest   Guest
	python  string            // version of the interpreter
	frames  chan runner.Frame // closed after the last one
	killed  chan struct{}     // closed before the box is destroyed
	done    chan struct{}     // closed after the process has ended; guards code and err
	code    int               // exit code
	err     error             // why the frames ended; nil after a normal end of the stream
	stderr  tail
	writing sync.Mutex // held for a whole message

	// Owned by the goroutine that uses the box.
	busy      bool  // the runner has not reported ready since its last program
	unchecked bool  // the runner has not reported yet what its last program has left
	files     bool  // the last program has left files in the scratch directories
	leftErr   error // a program has left something that cannot be removed, or the runner's report is missing

	killing    sync.Mutex // held while the box is being destroyed
	destroyed  bool       // guarded by killing
	destroyErr error      // of the latest destruction

	// Owned by startRunner.
	preload   []string
	imported  int    // number of modules of preload whose import has begun
	importing string // the module being imported; empty if none is
}

// A boxTemplate is what later boxes of an environment reuse from its first boxes. It is taken from boxes that have not
// run any program. The zero value is empty.
type boxTemplate struct {
	// compiled is the runner as a box has compiled it, which saves later boxes a tenth of their boot time. It is
	// trusted because the box had not run any program. It is nil until the first box has sent it.
	compiled atomic.Pointer[runner.Compiled]
	snapshot snapshotKeeper
}

// startRunner starts the runner in the box, and returns when the runner has forked a process for the first
// program. preload names modules that are imported before programs start. After an error the box is
// destroyed; if the error is a *snapshotError, another box may succeed.
func startRunner(ctx context.Context, box Box, preload []string, template *boxTemplate) (*runnerProcess, error) {
	mode := template.snapshot.bootMode(box, preload)
	if mode != restoreSnapshot {
		return bootRunner(ctx, box, preload, template, mode)
	}
	limited, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	r, err := bootRunner(limited, box, preload, template, mode)
	if err != nil {
		err = template.snapshot.failUnlessCancelled(ctx, err)
	}
	return r, err
}

// bootRunner starts the runner in the way that mode says. After an error the box is destroyed.
func bootRunner(
	ctx context.Context, box Box, preload []string, template *boxTemplate, mode bootMode,
) (*runnerProcess, error) {
	r := &runnerProcess{
		box:     box,
		boot:    mode,
		preload: preload,
		guest:   DefaultGuest(),
		frames:  make(chan runner.Frame, 16),
		killed:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	if g, ok := box.(GuestReporter); ok {
		r.guest = g.Guest()
	}
	var err error
	argv := runner.Argv(r.guest.Python)
	if s, ok := box.(Snapshotter); ok && mode == restoreSnapshot {
		r.session, err = s.Restore(ctx, template.snapshot.dir, argv)
	} else {
		r.session, err = box.Exec(ctx, argv)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start runner: %w", err), r.kill())
	}
	go r.readFrames() // ends with the box; close waits for it
	if err := r.awaitHello(ctx, template); err != nil {
		closeErr := r.close(context.WithoutCancel(ctx)) // before explain, so that stderr is complete
		return nil, errors.Join(r.explain(err), closeErr)
	}
	return r, nil
}

// explain adds the runner's standard error to the error of a failed start. If a module was being imported, the result
// is a HostError that names it.
func (r *runnerProcess) explain(err error) error {
	err = fmt.Errorf("%w%s", err, r.stderr.suffix())
	if r.importing == "" {
		return err
	}
	return &HostError{
		Reason: ReasonPreload, Err: fmt.Errorf("preload of %s: %w", r.importing, err),
		Fix: "correct execution.preload or pools.NAME.preload, " +
			"or add the module to the requirements or the image of the pool",
	}
}

// awaitHello sends the runner's source, unless the box was restored, and waits until the runner is ready. If r.boot is
// bootAndSnapshot, it takes a snapshot before that. close reports the error of a failed kill; a failed
// send shows as the end of the frames.
func (r *runnerProcess) awaitHello(ctx context.Context, template *boxTemplate) (err error) {
	if r.boot != restoreSnapshot {
		source := r.source(template)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = r.session.Stdin().Write(source)
		}()
		defer func() {
			if err != nil {
				r.killUntil(sent) // a runner that reads nothing must not block Write
			}
			<-sent
		}()
	}
	if r.boot == bootAndSnapshot {
		if _, err = r.awaitFrame(ctx, "warm", template); err != nil {
			return err
		}
		if err = template.snapshot.take(ctx, r.box); err != nil {
			_ = r.kill()
			return err
		}
	}
	if r.boot != bootOnly {
		_ = r.send(runner.Signal{Type: "resume"}, nil)
	}
	f, err := r.awaitFrame(ctx, "hello", template)
	r.python = f.Python
	return err
}

// source returns what the runner reads first: its configuration and its code.
func (r *runnerProcess) source(template *boxTemplate) []byte {
	boot := runner.Boot{
		Guest:   r.guest,
		Preload: append([]string{}, r.preload...),
		Pause:   r.boot == bootAndSnapshot,
	}
	if compiled := template.compiled.Load(); compiled != nil {
		boot.Compiled = *compiled
	}
	return runner.Source(boot)
}

// awaitFrame waits for a frame of type want from a runner that has not run a program. After an error the box
// must be destroyed.
func (r *runnerProcess) awaitFrame(ctx context.Context, want string, template *boxTemplate) (runner.Frame, error) {
	for {
		select {
		case f, ok := <-r.frames:
			switch {
			case !ok:
				<-r.done
				return f, fmt.Errorf("runner ended with code %d before it was ready (%w)",
					r.code, cmp.Or(r.err, io.EOF))
			case f.Type == "preload" && r.imported < len(r.preload):
				r.imported, r.importing = r.imported+1, r.preload[r.imported]
				continue
			case f.Type != want:
				_ = r.kill()
				return f, fmt.Errorf("runner sent %q before %s", f.Type, want)
			case f.Version != runner.Version:
				_ = r.kill()
				return f, fmt.Errorf("runner speaks protocol version %d, want %d", f.Version, runner.Version)
			}
			r.importing = ""
			if len(f.Body) > 0 {
				template.compiled.Store(&runner.Compiled{Interpreter: f.Interpreter, Code: f.Body})
			}
			return f, nil
		case <-ctx.Done():
			_ = r.kill()
			return runner.Frame{}, fmt.Errorf("wait for runner: %w", context.Cause(ctx))
		}
	}
}

// alive reports whether the runner can run a program, now or as soon as it has cleaned up.
func (r *runnerProcess) alive() bool {
	select {
	case <-r.killed:
		return false
	case <-r.done:
		return false
	default:
		return true
	}
}

func (r *runnerProcess) ended() <-chan struct{} { return r.done }

func (r *runnerProcess) restored() bool { return r.boot == restoreSnapshot }

// holdsFiles reports whether the last program may have left files, which the runner still removes. It does not wait.
func (r *runnerProcess) holdsFiles() bool {
	if r.unchecked {
		select {
		case f, ok := <-r.frames:
			_ = r.checkLeft(f, ok) // awaitChecked returns the error again
		default:
		}
	}
	return r.unchecked || r.files || r.leftErr != nil
}

// awaitChecked waits until the runner has reported what the last program has left. An error means that the box must be
// replaced, unless ctx has ended: then awaitChecked may be called again.
func (r *runnerProcess) awaitChecked(ctx context.Context) error {
	if !r.unchecked {
		return r.leftErr
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no report in %s", readyTimeout))
	defer cancel()
	select {
	case f, ok := <-r.frames:
		return r.checkLeft(f, ok)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkLeft checks the frame that followed the end of a program. ok is false if the runner has ended.
func (r *runnerProcess) checkLeft(f runner.Frame, ok bool) error {
	r.unchecked, r.files = false, f.Scratch
	if r.leftErr = r.expect(f, ok, "left"); r.leftErr == nil && f.Left != "" {
		r.leftErr = fmt.Errorf("the program has left %s", f.Left)
	}
	return r.leftErr
}

// expect returns an error unless a frame has the type want. ok is false if the runner has ended.
func (r *runnerProcess) expect(f runner.Frame, ok bool, want string) error {
	if !ok {
		return fmt.Errorf("runner ended with code %d%s", r.code, r.stderr.suffix())
	}
	if f.Type != want {
		return fmt.Errorf("runner sent %q before %s", f.Type, want)
	}
	return nil
}

// wasKilled reports whether this process ended the box.
func (r *runnerProcess) wasKilled() bool {
	select {
	case <-r.killed:
		return true
	default:
		return false
	}
}

// close destroys the box and waits until the reader has ended. It may be called again, even after an error.
func (r *runnerProcess) close(ctx context.Context) error {
	err := r.destroy(true)
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

// kill destroys the box. Further calls do not try again after an error: they return it.
func (r *runnerProcess) kill() error { return r.destroy(false) }

// killUntil destroys the box. After an error it tries again every killGrace, until finished is closed.
func (r *runnerProcess) killUntil(finished <-chan struct{}) {
	for r.destroy(true) != nil {
		select {
		case <-time.After(killGrace):
		case <-finished:
			return // close tries again
		}
	}
}

// destroy destroys the box, unless it is destroyed. If a destruction has failed, it tries again only if again is set.
func (r *runnerProcess) destroy(again bool) error {
	r.killing.Lock()
	defer r.killing.Unlock()
	if r.destroyed || r.destroyErr != nil && !again {
		return r.destroyErr
	}
	if !r.wasKilled() {
		close(r.killed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyWait)
	defer cancel()
	if r.destroyErr = r.box.Destroy(ctx); r.destroyErr != nil {
		r.destroyErr = fmt.Errorf("destroy box: %w", r.destroyErr)
	}
	r.destroyed = r.destroyErr == nil
	return r.destroyErr
}

// readFrames forwards the runner's frames until it ends. A violation of the protocol ends the box.
func (r *runnerProcess) readFrames() {
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(&r.stderr, r.session.Stderr()) })
	in := bufio.NewReaderSize(r.session.Stdout(), 64<<10)
	for {
		f, err := runner.Read(in)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			break
		}
		select {
		case r.frames <- f:
		case <-r.killed: // frames may no longer have a receiver
		}
	}
	if errors.Is(r.err, runner.ErrFrame) {
		_ = r.kill() // close returns its error
	}
	_, _ = io.Copy(io.Discard, in)
	_ = r.session.Stdin().Close()
	copying.Wait()
	code, err := r.session.Wait()
	r.code, r.err = code, cmp.Or(r.err, err)
	close(r.done)
	close(r.frames)
}

// send writes a message. It may block until the runner reads.
func (r *runnerProcess) send(header any, body []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return runner.Write(r.session.Stdin(), header, body)
}

// awaitReady waits until the runner has cleaned up after its last program.
func (r *runnerProcess) awaitReady(ctx context.Context) error {
	if !r.alive() {
		return errors.New("the box has ended" + r.stderr.suffix())
	}
	if !r.busy {
		return nil
	}
	if err := r.awaitChecked(ctx); err != nil {
		return err
	}
	select {
	case f, ok := <-r.frames: // the common case: some time has passed since the last program
		return r.checkReady(f, ok)
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("runner is not ready after %s", readyTimeout))
	defer cancel()
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { r.killUntil(sent) }) // a runner that stops reading must not block send
	_ = r.send(runner.Signal{Type: "next"}, nil)                 // an error shows as the end of the frames
	close(sent)
	if !stop() {
		return context.Cause(ctx)
	}
	select {
	case f, ok := <-r.frames:
		return r.checkReady(f, ok)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkReady checks the frame that followed a program. ok is false if the runner has ended.
func (r *runnerProcess) checkReady(f runner.Frame, ok bool) error {
	if err := r.expect(f, ok, "ready"); err != nil {
		return err
	}
	r.busy, r.files = false, false
	return nil
}

// tail keeps the last maxStderrTail bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > maxStderrTail {
		t.text = bytes.Clone(t.text[len(t.text)-maxStderrTail:])
	}
	return len(p), nil
}

// suffix returns the text after ": ", for the end of an error message, or an empty string.
func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "\uFFFD")); text != "" {
		return ": " + text
	}
	return ""
}
