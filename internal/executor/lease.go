package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrLeaseOver is returned by Run on a lease that was released or burned.
var ErrLeaseOver = errors.New("the lease is over")

// A Lease is the use of one box by one task. Its methods may be called from several
// goroutines; Run runs one program at a time.
type Lease struct {
	pool   *Pool
	box    *pooledBox
	limits Limits
	cold   bool

	mu    sync.Mutex
	over  bool
	doubt bool       // the box must not be used again
	busy  sync.Mutex // held while a program runs
}

// leaseTries bounds how many broken boxes one lease goes through.
const leaseTries = 3

// Wait is what a lease waits for.
type Wait string

// What leases wait for.
const (
	WaitSandbox Wait = "sandbox" // all boxes serve others, or the next one is being made
	WaitMemory  Wait = "memory"  // tasks have what memory there is for boxes (PoolOptions.MemoryMBTotal)
)

// longWait is how long a lease waits before it says so.
const longWait = time.Second

// Lease waits for a box: one bound to the key, or one that has served nobody. Leases
// are served in the order in which they came. The error is ErrTooLarge, an
// *UnavailableError, ErrPoolClosed, or the cause of the context's end.
func (p *Pool) Lease(ctx context.Context, key Key, limits Limits) (*Lease, error) {
	return p.LeaseTelling(ctx, key, limits, func(Wait) {})
}

// LeaseTelling is Lease that calls tell, from within, when it has waited for a second, and whenever it
// waits for something else than it said.
func (p *Pool) LeaseTelling(ctx context.Context, key Key, limits Limits, tell func(Wait)) (*Lease, error) {
	limits = limits.OrDefaults()
	if total := p.opts.MemoryMBTotal; total > 0 && limits.MemoryMB > total {
		return nil, fmt.Errorf("lease box: %d MB of memory is %w: %d MB", limits.MemoryMB, ErrTooLarge, total)
	}
	env := p.environment(key.Environment)
	key.Environment = env.Name
	var err error
	for range leaseTries {
		var b *pooledBox
		if b, err = p.wait(ctx, env, key, limits, tell); err != nil {
			return nil, fmt.Errorf("lease box: %w", err)
		}
		l := &Lease{pool: p, box: b, limits: limits, cold: b.cold}
		if err = p.limit(ctx, b, limits); err == nil {
			return l, nil
		}
		l.Burn()
	}
	return nil, fmt.Errorf("lease box: %w", err)
}

func (p *Pool) limit(ctx context.Context, b *pooledBox, limits Limits) error {
	if limiter, ok := b.box.(Limiter); ok {
		return limiter.Limit(ctx, limits)
	}
	return nil
}

// wait queues for a box.
func (p *Pool) wait(ctx context.Context, env *environment, key Key, limits Limits, tell func(Wait)) (*pooledBox, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{env: env, key: key, memoryMB: limits.MemoryMB, since: time.Now(), answer: make(chan answer, 1)}
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return nil, p.closed
	}
	p.waiting = append(p.waiting, w)
	p.settle()
	p.mu.Unlock()
	p.kick()
	long := time.NewTicker(longWait)
	defer long.Stop()
	var told Wait
	for {
		select {
		case a := <-w.answer:
			return a.box, a.err
		case <-ctx.Done():
			return nil, p.leave(ctx, w)
		case <-long.C:
			if now := p.waitsFor(w); now != told {
				told = now
				tell(now)
			}
		}
	}
}

func (p *Pool) waitsFor(w *waiter) Wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.short {
		return WaitMemory
	}
	return WaitSandbox
}

// leave takes a lease out of the queue whose context has ended. A box that it was
// given in the same moment goes back.
func (p *Pool) leave(ctx context.Context, w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.withdraw(w) {
		if a := <-w.answer; a.box != nil {
			a.box.held = false
			if a.box.state == leased {
				p.giveBack(a.box)
			}
		}
	}
	p.settle()
	p.kick()
	if err := w.env.trouble.err; err != nil {
		return fmt.Errorf("%w; boxes cannot be made: %w", context.Cause(ctx), err)
	}
	return context.Cause(ctx)
}

// Dir is the host directory that the box sees as its workspace: empty in a new box,
// and as the last task left it while the box is bound. Files that programs shall
// write to belong to the owner of this directory.
func (l *Lease) Dir() string { return l.box.dir }

// BoxID names the box; no other box ever has the same.
func (l *Lease) BoxID() string { return l.box.id }

// Info describes the box.
func (l *Lease) Info() Info {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.pool.infoOf(l.box.env)
}

// Environment is the name of the box's environment.
func (l *Lease) Environment() string { return l.box.env.Name }

// Memory is a place where the users of a box keep what they know about it, as what its directory
// holds. It is empty in a new box and dies with it: what is an io.Closer is closed then. It must not
// be used after Release or Burn.
func (l *Lease) Memory() *any { return &l.box.memory }

// Boot is "cold" when the lease waited for its box to be made, else "warm".
func (l *Lease) Boot() string {
	if l.cold {
		return "cold"
	}
	return "warm"
}

// Run runs a program in the box, with the memory, processors and disk that were
// leased. After an error it has not run to an end and the box is burned. After a
// verdict that is Dirty the box is burned at Release.
func (l *Lease) Run(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	l.busy.Lock()
	defer l.busy.Unlock()
	if l.isOver() {
		return Verdict{}, fmt.Errorf("run program: %w", ErrLeaseOver)
	}
	program.Limits = program.Limits.OrDefaults()
	program.Limits.MemoryMB, program.Limits.CPUs = l.limits.MemoryMB, l.limits.CPUs
	program.Limits.WorkspaceMB = l.limits.WorkspaceMB
	l.pool.ran(l.box, program.TaskID)
	verdict, err := l.runWatched(ctx, program, hooks)
	// The directory is the program's own: one that has locked itself out must not lock out the next.
	if err = errors.Join(err, os.Chmod(l.box.dir, workspaceMode)); err != nil {
		l.Burn()
		return Verdict{}, fmt.Errorf("run program in box %s: %w", l.box.id, err)
	}
	if verdict.Dirty {
		l.mu.Lock()
		l.doubt = true
		l.mu.Unlock()
	}
	return verdict, nil
}

func (p *Pool) ran(b *pooledBox, task string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace("ran", b, task)
}

// runWatched runs the program and kills it when its workspace grows too large.
func (l *Lease) runWatched(ctx context.Context, program Program, hooks Hooks) (Verdict, error) {
	largest := l.limits.WorkspaceMB
	if l.box.disk && largest >= l.pool.opts.DiskMB {
		return l.box.runner.run(ctx, program, hooks) // the disk is the limit
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if used := watchWorkspace(ctx, l.box.dir, largest<<20); used > 0 {
			cancel(&Failure{
				Code:    CodeWorkspace,
				Message: fmt.Sprintf("the workspace grew to %d MiB; the limit is %d MiB", used>>20, largest),
			})
		}
	})
	verdict, err := l.box.runner.run(ctx, program, hooks)
	cause := context.Cause(ctx)
	cancel(nil)
	watching.Wait()
	var failure *Failure
	if err != nil && errors.As(cause, &failure) && failure.Code == CodeWorkspace {
		return Verdict{Status: Failed, Error: failure, Dirty: true}, nil
	}
	return verdict, err
}

func (l *Lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Release gives the box back, bound to its key; a box in doubt, or one whose program
// still runs, is burned. Further calls, and calls after Burn, do nothing.
func (l *Lease) Release() { l.end(false) }

// Burn destroys the box, soon, because its tree or its processes are in doubt.
func (l *Lease) Burn() { l.end(true) }

func (l *Lease) end(burn bool) {
	l.mu.Lock()
	over := l.over
	l.over = true
	burn = burn || l.doubt
	l.mu.Unlock()
	if over {
		return
	}
	if l.busy.TryLock() {
		l.busy.Unlock() // and no Run begins any more
	} else {
		burn = true
	}
	p := l.pool
	p.giveUp(l.box, burn)
	if err := p.forget(l.box); err != nil {
		p.log.Warn("memory of a burned box could not be closed", "box", l.box.id, "error", err)
	}
}

// giveUp ends the lease of a box.
func (p *Pool) giveUp(b *pooledBox, burn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.held = false
	if b.state == leased { // else the pool was closed
		p.trace("released", b, "")
		p.giveBack(b)
		if burn || p.opts.Reuse == ReuseNever || !b.runner.alive() {
			p.burn(b)
		}
	}
	p.settle()
	p.kick()
}
