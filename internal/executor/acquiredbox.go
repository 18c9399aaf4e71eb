package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/codefleet/codefleet/internal/errcode"
)

// ErrReleased is returned by Run on a box that was released or discarded.
var ErrReleased = errors.New("the box was released")

// An AcquiredBox is the use of one box of a pool, from Acquire until Release or Discard. Its methods may
// be called from several goroutines; Run runs one program at a time.
type AcquiredBox struct {
	pool   *Pool
	box    *pooledBox
	limits Limits
	cold   bool

	mu       sync.Mutex
	released bool
	dirty    bool       // a verdict was Dirty: discard at Release
	running  sync.Mutex // held while a program runs
}

// Dir is the host directory that the box sees as its workspace. It is empty in a new box; in a bound box
// it is as the previous task left it. Files that programs may write belong to the owner of this directory.
func (a *AcquiredBox) Dir() string { return a.box.dir }

// BoxID is the unique name of the box. It is never reused.
func (a *AcquiredBox) BoxID() string { return a.box.id }

// Info describes the box.
func (a *AcquiredBox) Info() Info {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	return a.pool.infoOf(a.box.env)
}

// Environment is the name of the box's environment.
func (a *AcquiredBox) Environment() string { return a.box.env.Name }

// Boot is "cold" if Acquire waited for this box to be created, else "warm".
func (a *AcquiredBox) Boot() string {
	if a.cold {
		return "cold"
	}
	return "warm"
}

// OnDestroy registers a function that the pool calls once, after the box has ended and was released, and
// before its directory is removed. Callers close what they keep open in Dir there: an open file keeps the
// disk of the box mounted. The pool logs an error. OnDestroy must not be called after Release or Discard.
func (a *AcquiredBox) OnDestroy(f func() error) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.box.onDestroy = append(a.box.onDestroy, f)
}

// Run runs a program in the box, with the memory, processors and disk that Acquire set. After an error
// the program did not run to its end and the box is discarded. After a verdict that is Dirty the box is
// discarded at Release. The error wraps ErrReleased, ErrSandboxDied, or the cause of the context's end.
func (a *AcquiredBox) Run(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	a.running.Lock()
	defer a.running.Unlock()
	if a.isReleased() {
		return Verdict{}, fmt.Errorf("run program: %w", ErrReleased)
	}
	program.Limits = program.Limits.OrDefaults()
	program.Limits.MemoryMB, program.Limits.CPUs = a.limits.MemoryMB, a.limits.CPUs
	program.Limits.WorkspaceMB = a.limits.WorkspaceMB
	a.pool.traceRun(a.box, program.TaskID)
	verdict, err := a.runWatched(ctx, program, hooks)
	// A program may have removed its own access to the directory. The next one needs it.
	if err = errors.Join(err, os.Chmod(a.box.dir, workspaceMode)); err != nil {
		a.Discard()
		return Verdict{}, fmt.Errorf("run program in box %s: %w", a.box.id, err)
	}
	if verdict.Dirty {
		a.mu.Lock()
		a.dirty = true
		a.mu.Unlock()
	}
	return verdict, nil
}

// runWatched runs the program, and kills it if its workspace grows beyond the limit.
func (a *AcquiredBox) runWatched(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	limitMB := a.limits.WorkspaceMB
	if a.box.hasDisk && limitMB >= a.pool.opts.DiskMB {
		return a.box.runner.run(ctx, program, hooks) // the disk is the limit
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if used := watchWorkspace(ctx, a.box.dir, limitMB<<20); used > 0 {
			cancel(&Failure{
				Code:    errcode.WorkspaceLimit,
				Message: fmt.Sprintf("the workspace grew to %d MiB; the limit is %d MiB", used>>20, limitMB),
			})
		}
	})
	verdict, err := a.box.runner.run(ctx, program, hooks)
	cause := context.Cause(ctx)
	cancel(nil)
	watching.Wait()
	var failure *Failure
	if err != nil && errors.As(cause, &failure) && failure.Code == errcode.WorkspaceLimit {
		return Verdict{Status: Failed, Error: failure, Dirty: true}, nil
	}
	return verdict, err
}

func (a *AcquiredBox) isReleased() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.released
}

// Release returns the box to the pool, bound to its key. A box with a Dirty verdict, or with a program
// still running, is discarded instead. Further calls, and calls after Discard, do nothing.
func (a *AcquiredBox) Release() { a.release(false) }

// Discard gives the box up: the pool destroys it soon. Use it when the workspace directory or the
// processes in the box may be in an unknown state.
func (a *AcquiredBox) Discard() { a.release(true) }

func (a *AcquiredBox) release(discard bool) {
	a.mu.Lock()
	again := a.released
	a.released = true
	discard = discard || a.dirty
	a.mu.Unlock()
	if again {
		return
	}
	if a.running.TryLock() {
		a.running.Unlock() // no Run can begin from here on
	} else {
		discard = true
	}
	a.pool.release(a.box, discard)
	if err := a.pool.callOnDestroy(a.box); err != nil {
		a.pool.log.Warn("cleanup of a discarded box failed", "box", a.box.id, "error", err)
	}
}

// release ends the use of a box.
func (p *Pool) release(b *pooledBox, discard bool) {
	p.update(func() {
		b.inUse = false
		if b.state != acquired { // the pool was closed meanwhile
			return
		}
		p.sched.trace("released", b, "")
		p.sched.unassign(b)
		if discard || p.opts.Reuse == ReuseNever || !b.runner.alive() {
			p.sched.discard(b)
		}
	})
}

func (p *Pool) traceRun(b *pooledBox, task string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sched.trace("ran", b, task)
}
