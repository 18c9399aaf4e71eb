package executor

import (
	"context"
	"math"
	"time"
)

const (
	// typicalBoxMB is the assumed memory of a box that was not measured.
	typicalBoxMB = 40

	// measureEvery is the interval at which the pool measures boxes that have become idle.
	measureEvery = time.Second

	// measureAfter is how long a box must have been idle before it is measured. Until then its runner may keep
	// processes for the next programs.
	measureAfter = 3 * time.Second
)

// trimIdle evicts bound boxes, starting with the one that has been idle the longest, until the idle boxes fit into
// PoolOptions.IdleMemoryMB together with the unbound boxes that MinReady demands. Unbound boxes stay even if they alone
// exceed the limit. Acquired boxes do not count, because PoolOptions.MemoryMBTotal limits them.
func (s *scheduler) trimIdle() {
	if s.opts.IdleMemoryMB == 0 {
		return
	}
	for left := s.idleMBLeft(); left < 0; {
		b := s.oldest(isBound)
		if b == nil {
			return
		}
		left += b.idleMB
		s.evict(b)
	}
}

func isBound(b *pooledBox) bool { return b.state == bound }

// idleMBLeft returns what is left of PoolOptions.IdleMemoryMB without the memory of the idle boxes and of the boxes
// that MinReady still demands. It may be negative.
func (s *scheduler) idleMBLeft() float64 {
	left := float64(s.opts.IdleMemoryMB) - s.idleMB()
	for _, e := range s.envs {
		left -= float64(max(0, e.MinReady-s.countOf(e, ready))) * e.newBoxMB()
	}
	return left
}

// idleMB adds up the memory of the idle boxes.
func (s *scheduler) idleMB() float64 {
	total := 0.0
	for _, b := range s.boxes {
		if b.state == ready || b.state == bound {
			total += b.idleMB
		}
	}
	return total
}

// newBoxMB returns how much memory the next box of the environment is expected to use.
func (e *environment) newBoxMB() float64 {
	if e.boxMB == 0 {
		return typicalBoxMB
	}
	return e.boxMB
}

// free returns how many more boxes may exist.
func (s *scheduler) free() int {
	if s.opts.Max == 0 {
		return math.MaxInt
	}
	return s.opts.Max - len(s.boxes)
}

// full reports whether an idle box must be evicted to make room for another box. It assumes that the other box is of
// the first environment.
func (s *scheduler) full() bool {
	return s.free() <= 0 || s.opts.IdleMemoryMB > 0 && s.idleMBLeft() < s.envs[0].newBoxMB()
}

// watchIdle measures boxes that have become idle, and evicts idle boxes if the host's disk fills, until ctx ends.
func (p *Pool) watchIdle(ctx context.Context) {
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, b := range p.unmeasured() {
			mb := memoryOf(ctx, b.box)
			p.update(func() { b.idleMB = mb })
		}
		p.trimDisk()
	}
}

// trimDisk evicts the bound box that has been idle the longest if the host's disk has less free space than one box
// may use, and no box is being destroyed. The files of an idle box stay on the disk until the box is destroyed.
func (p *Pool) trimDisk() {
	if free, err := p.hostFree(p.workspacesDir()); err != nil || free >= p.opts.DiskMB<<20 {
		return
	}
	p.update(func() {
		if b := p.sched.oldest(isBound); b != nil && p.sched.count(destroying) == 0 {
			p.sched.evict(b)
		}
	})
}

// unmeasured returns the bound boxes that have been idle for measureAfter and were not measured since their last use.
// It marks them as measured.
func (p *Pool) unmeasured() []*pooledBox {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var found []*pooledBox
	for _, b := range p.sched.boxes {
		if b.state == bound && b.since.After(b.measured) && now.Sub(b.since) >= measureAfter {
			b.measured = now
			found = append(found, b)
		}
	}
	return found
}

// memoryOf measures the memory of a box. It returns typicalBoxMB if that fails, for example because the box is being
// destroyed.
func memoryOf(ctx context.Context, b Box) float64 {
	reporter, ok := b.(StatsReporter)
	if !ok {
		return typicalBoxMB
	}
	stats, err := reporter.Stats(ctx)
	if err != nil || stats.MemoryMB == 0 {
		return typicalBoxMB
	}
	return stats.MemoryMB
}
