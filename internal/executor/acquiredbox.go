package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/codefleet/codefleet/internal/errcode"
)

// ErrReleased is returned by Run on a box that was released or discarded.
var ErrReleased = errors.New("the box was released")

// An AcquiredBox is a box of a pool that a caller uses, from Acquire until Release or Discard. Its methods
// may be called from several goroutines; Run runs one program at a time.
type AcquiredBox struct {
	pool   *Pool
	box    *pooledBox
	limits Limits
	cold   bool

	mu       sync.Mutex
	released bool
	dirty    bool       // a verdict was Dirty, so Release discards the box
	running  sync.Mutex // held while a program runs
}

// Dir returns the host directory that the box sees as its workspace. In a new box the directory is empty; in a
// bound box it is as the previous task left it. Files that programs may write must belong to the directory's owner.
func (a *AcquiredBox) Dir() string { return a.box.dir }

// BoxID returns the unique name of the box. It is never reused.
func (a *AcquiredBox) BoxID() string { return a.box.id }

// Info describes the box.
func (a *AcquiredBox) Info() Info {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	return a.pool.infoOf(a.box.env)
}

// Environment returns the name of the box's environment.
func (a *AcquiredBox) Environment() string { return a.box.env.Name }

// Boot returns "cold" if Acquire waited for this box to be created, else "warm".
func (a *AcquiredBox) Boot() string {
	if a.cold {
		return "cold"
	}
	return "warm"
}

// OnDestroy registers a function that the pool calls once, when the box has been released and is being destroyed.
// Processes in the box may still be alive then. The function closes what the caller keeps open in Dir: an open file
// keeps the box's disk mounted. Dir still exists, unless the pool was closed before the release. The pool logs the
// function's error. OnDestroy must not be called after Release or Discard.
func (a *AcquiredBox) OnDestroy(f func() error) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.box.onDestroy = append(a.box.onDestroy, f)
}

// Run runs a program in the box, with the memory, CPU and workspace limits that Acquire set. An error means that the
// program did not run to its end, or that the box could not be reset after it; the box is then discarded. After a Dirty
// verdict, Release discards the box. The runner looks for what the program has left after Run has returned. The error
// wraps ErrReleased, ErrSandboxDied or the context's cause, among others.
func (a *AcquiredBox) Run(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	a.running.Lock()
	defer a.running.Unlock()
	if a.isReleased() {
		return Verdict{}, fmt.Errorf("run program: %w", ErrReleased)
	}
	program.Limits = program.Limits.OrDefaults()
	program.Limits.MemoryMB, program.Limits.CPUs = a.limits.MemoryMB, a.limits.CPUs
	program.Limits.WorkspaceMB = a.limits.WorkspaceMB
	hooks.log = a.pool.log
	a.pool.mu.Lock()
	a.pool.sched.trace("ran", a.box, program.TaskID)
	a.pool.mu.Unlock()
	links, err := a.box.views.linkSkills(a.box.dir, program.Catalogue)
	if err = errors.Join(err, a.box.views.show(program.Catalogue)); err != nil {
		a.Discard()
		return Verdict{}, fmt.Errorf("run program in box %s: %w", a.box.id, err)
	}
	verdict, err := a.runWatched(ctx, program, hooks)
	reset, failed := resetWorkspace(a.box.box, a.box.dir, a.box.reset)
	a.box.reset = reset
	if err = errors.Join(err, failed, unlinkSkills(a.box.dir, links)); err != nil {
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

// runWatched runs the program, and kills it if its workspace grows beyond the limit or cannot be measured. The verdict
// then says so.
func (a *AcquiredBox) runWatched(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	limitMB := a.limits.WorkspaceMB
	if a.box.hasDisk && limitMB >= a.pool.opts.DiskMB {
		return a.box.runner.run(ctx, program, hooks) // the disk is the limit
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if problem := watchWorkspace(ctx, a.box.dir, limitMB); problem != "" {
			cancel(&Failure{Code: errcode.WorkspaceLimit, Message: problem})
		}
	})
	verdict, err := a.box.runner.run(ctx, program, hooks)
	cancel(nil)
	watching.Wait()
	return verdict, err
}

// AwaitChecked waits until the runner has reported what the last program has left in the box. An error means that
// something cannot be removed, or that the report is missing. A caller that writes to the workspace after a program
// calls it first, because the runner also searches the workspace.
func (a *AcquiredBox) AwaitChecked(ctx context.Context) error {
	a.running.Lock()
	defer a.running.Unlock()
	if a.isReleased() {
		return ErrReleased
	}
	return a.box.runner.awaitChecked(ctx)
}

func (a *AcquiredBox) isReleased() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.released
}

// Release returns the box to the pool, bound to its key. The box gets no other task before it is known that the
// program has left nothing, or before its files and memory are gone; if that takes too long, the pool replaces the
// box. Release does not wait. After a Dirty verdict, or while a program still runs, it discards the box instead.
// Further calls, and calls after Discard, do nothing.
func (a *AcquiredBox) Release() { a.release(false) }

// Discard releases the box and makes the pool destroy it. Use it when the workspace directory or the
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
		a.running.Unlock() // no Run can begin any more
	} else {
		discard = true
	}
	a.pool.release(a.box, discard)
	// This calls the functions only if the box is being destroyed.
	if err := a.pool.callOnDestroy(a.box); err != nil {
		a.pool.log.Warn("cleanup of discarded box failed", "box", a.box.id, "error", err)
	}
}

// release ends the use of a box. It returns the box to the pool, or discards it.
func (p *Pool) release(b *pooledBox, discard bool) {
	discard = discard || p.opts.Reuse == ReuseNever
	clean := discard || b.isClean()
	p.update(func() {
		b.inUse = false
		if b.state != acquired { // the pool has been closed
			return
		}
		p.sched.trace("released", b, "")
		switch {
		case discard || !b.runner.alive():
			p.sched.discard(b)
		case clean:
			p.sched.unassign(b)
		default:
			b.state, b.expected = cleaning, true
			p.sched.unclean = append(p.sched.unclean, b)
		}
	})
}
