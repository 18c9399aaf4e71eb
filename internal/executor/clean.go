package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

const (
	// leftMB is how much more memory a box may use after a program than before its first one. It covers the processes
	// that the runner keeps for the next programs, and the growth of the engine.
	leftMB = 96

	// reportTime is how long the pool waits for the runner's report of what the last program has left, before it gives
	// the box more processor time. Most boxes are clean by then.
	reportTime = 20 * time.Millisecond

	// cleanTime is how long a released box may take to become clean after reportTime.
	cleanTime = 4 * time.Second

	// freeTime is the part of cleanTime in which the memory of the last program must become free, after its files are
	// removed.
	freeTime = time.Second

	// cleanInterval is the time between two looks at the memory of a box that is becoming clean.
	cleanInterval = 10 * time.Millisecond
)

// isClean reports whether the runner has reported that the last program has left no files, and the box does not use
// much more memory than before. It does not wait.
func (b *pooledBox) isClean() bool { return !b.runner.holdsFiles() && !b.holdsMemory() }

// holdsMemory reports whether the box uses much more memory than before its first program, so that the next program has
// less.
func (b *pooledBox) holdsMemory() bool {
	meter, ok := b.box.(MemoryMeter)
	return ok && meter.UsesMoreThan(b.freshMB+leftMB)
}

// awaitClean waits until it is known what the last program has left, the runner has removed its files, and the memory
// of the program is free. Meanwhile the box has the default limit of CPUs: that of the program may be too low to clean
// up in time. An error means that the box must be replaced.
func (b *pooledBox) awaitClean(ctx context.Context, memoryMB int) error {
	if err := b.limit(ctx, Limits{MemoryMB: memoryMB}.OrDefaults()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTime, fmt.Errorf("the box is not clean after %s", cleanTime))
	defer cancel()
	if err := b.runner.awaitChecked(ctx); err != nil {
		return err
	}
	if err := b.runner.awaitReady(ctx); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeoutCause(ctx, freeTime, fmt.Errorf("the box is not clean after %s", freeTime))
	defer cancel()
	for b.holdsMemory() {
		if clock.Sleep(ctx, cleanInterval) != nil {
			return fmt.Errorf("%w: it uses over %d MB more than when it was new", context.Cause(ctx), leftMB)
		}
	}
	return nil
}

// cleanReleased starts to clean the boxes that were released unclean.
func (p *Pool) cleanReleased(ctx context.Context, work *sync.WaitGroup) {
	p.mu.Lock()
	unclean := p.sched.unclean
	p.sched.unclean = nil
	for _, b := range unclean {
		memoryMB := b.memoryMB
		work.Go(func() { p.clean(ctx, b, memoryMB) })
	}
	p.mu.Unlock()
}

// clean returns a released box to the pool as soon as it is clean, or discards it.
func (p *Pool) clean(ctx context.Context, b *pooledBox, memoryMB int) {
	expected, cancel := context.WithTimeout(ctx, reportTime)
	err := b.runner.awaitChecked(expected)
	late := expected.Err() != nil
	cancel()
	if late || err == nil && !b.isClean() {
		p.update(func() { b.expected = false })
		err = b.awaitClean(ctx, memoryMB)
	}
	p.update(func() {
		if b.state != cleaning { // the pool has been closed
			return
		}
		if err == nil && !b.runner.alive() { // watch has ignored it
			err = errors.New("the box has ended")
		}
		if err != nil {
			p.sched.discard(b)
			p.log.InfoContext(ctx, "unclean box discarded", "box", b.id, "tenant", b.key.Tenant, "error", err)
			return
		}
		p.sched.unassign(b)
	})
}
