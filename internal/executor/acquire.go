package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// ErrTooLarge is returned by Acquire when a request exceeds the pool's total memory.
var ErrTooLarge = errors.New("exceeds the pool's total")

// UnavailableError is returned by Acquire while boxes cannot be created. The pool keeps trying, so the
// caller may retry later.
type UnavailableError struct {
	Attempts int   // consecutive failures
	Err      error // the last failure
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("no box could be created in %s (%s): %v", text.Count(e.Attempts, "attempt"), ReasonOf(e.Err),
		e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// Wait says what a request waits for.
type Wait string

// Values of Wait.
const (
	WaitBox    Wait = "sandbox" // every box is acquired, or the next one is being created
	WaitMemory Wait = "memory"  // acquired boxes use up PoolOptions.MemoryMBTotal
)

// longWait is how long a request waits before Acquire reports it.
const longWait = time.Second

// limitAttempts is the number of boxes on which Acquire tries to set the limits.
const limitAttempts = 3

// Acquire waits for a box that is bound to the key, or for an unbound one, and sets its outer limits (see Limiter).
// Requests are served in order of arrival. If onWait is not nil, Acquire calls it after the first second
// of waiting, and again whenever the reason to wait changes.
//
// The error is ErrTooLarge, an *UnavailableError, ErrPoolClosed, the driver's error if the limits could not
// be set, or the context's cause.
func (p *Pool) Acquire(ctx context.Context, key Key, limits Limits, onWait func(Wait)) (*AcquiredBox, error) {
	limits = limits.OrDefaults()
	if total := p.opts.MemoryMBTotal; total > 0 && limits.MemoryMB > total {
		return nil, fmt.Errorf("acquire box: %d MB of memory %w of %d MB", limits.MemoryMB, ErrTooLarge, total)
	}
	env := p.environment(key.Environment)
	key.Environment = env.Name
	var err error
	for range limitAttempts {
		var b *pooledBox
		if b, err = p.wait(ctx, env, key, limits, onWait); err != nil {
			return nil, fmt.Errorf("acquire box: %w", err)
		}
		a := &AcquiredBox{pool: p, box: b, limits: limits, cold: b.cold}
		if err = b.limit(ctx, limits); err == nil {
			return a, nil
		}
		a.Discard()
	}
	return nil, fmt.Errorf("acquire box: %w", err)
}

// wait queues a request and waits until the scheduler serves it.
func (p *Pool) wait(
	ctx context.Context, env *environment, key Key, limits Limits, onWait func(Wait),
) (*pooledBox, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &acquireRequest{
		env: env, key: key, memoryMB: limits.MemoryMB, since: time.Now(), result: make(chan acquireResult, 1),
	}
	p.update(func() {
		if p.sched.closed != nil {
			r.fail(p.sched.closed)
			return
		}
		p.sched.waiting = append(p.sched.waiting, r)
	})
	tick := time.NewTicker(longWait)
	defer tick.Stop()
	var reported Wait
	for {
		select {
		case result := <-r.result:
			return result.box, result.err
		case <-ctx.Done():
			return nil, p.abandon(ctx, r)
		case <-tick.C:
			if now := p.waitOf(r); onWait != nil && now != reported {
				reported = now
				onWait(now)
			}
		}
	}
}

func (p *Pool) waitOf(r *acquireRequest) Wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.lacksMemory {
		return WaitMemory
	}
	return WaitBox
}

// abandon removes a request whose context has ended, and returns the cause, with the reason why boxes cannot be
// created if there is one. If the scheduler has just assigned a box to the request, the box is returned to the pool.
func (p *Pool) abandon(ctx context.Context, r *acquireRequest) error {
	cause := context.Cause(ctx)
	p.update(func() {
		if !p.sched.removeRequest(r) {
			if result := <-r.result; result.box != nil {
				result.box.inUse = false
				if result.box.state == acquired {
					p.sched.unassign(result.box)
				}
			}
		}
		if err := r.env.failures.err; err != nil {
			cause = fmt.Errorf("%w; boxes cannot be created: %w", cause, err)
		}
	})
	return cause
}
