package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// refill adds the unbound boxes that are lacking to the list create, which has one environment for each box to create.
// Then it limits how many boxes boot at once. It returns the list and how long to wait before the next schedule.
// arriving counts, by environment, the boxes being created that no request has reserved; free is how many more boxes
// may exist.
func (s *scheduler) refill(
	now time.Time, create []*environment, arriving map[*environment]int, free int,
) ([]*environment, time.Duration) {
	if s.closed != nil {
		return nil, 0
	}
	lacking, total := s.lacking(arriving)
	if total == 0 {
		s.refills.lackingSince = time.Time{}
		return s.limitBoots(now, create, 0)
	}
	if s.refills.lackingSince.IsZero() {
		s.refills.lackingSince = now
	}
	booting, _ := s.booting(now)
	creating := booting + len(create)
	n, next := s.refills.allowed(now, creating, s.inUse())
	if s.stats.Created == 0 { // several boots at once would delay the first box
		n = min(n, max(0, 1-creating))
	}
	chosen := s.mostLacking(now, lacking, min(n, free))
	create = append(create, chosen...)
	if n > len(chosen) && len(chosen) < total && s.count(destroying) == 0 {
		next = s.evictIdle(now)
	}
	return s.limitBoots(now, create, next)
}

// lacking counts the unbound boxes that MinReady demands and that neither exist nor are being created, by environment
// and in total.
func (s *scheduler) lacking(arriving map[*environment]int) (lacking map[*environment]int, total int) {
	lacking = map[*environment]int{}
	for _, e := range s.envs {
		lacking[e] = max(0, e.MinReady-s.countOf(e, ready)-arriving[e])
		if e.root == nil { // the first box prepares the environment; more would only wait for it
			lacking[e] = min(lacking[e], max(0, 1-s.countOf(e, warming)))
		}
		total += lacking[e]
	}
	return lacking, total
}

// mostLacking chooses environments for up to n boxes, starting with the one that lacks most.
func (s *scheduler) mostLacking(now time.Time, lacking map[*environment]int, n int) []*environment {
	var chosen []*environment
	for range n {
		var most *environment
		for _, e := range s.envs {
			if lacking[e] > 0 && e.backoff(now) == 0 && (most == nil || lacking[e] > lacking[most]) {
				most = e
			}
		}
		if most == nil {
			break
		}
		lacking[most]--
		chosen = append(chosen, most)
	}
	return chosen
}

// limitBoots drops the boxes of environments that back off after a failure, and those for which no processor
// is free. It returns the others and how long to wait before the next schedule.
func (s *scheduler) limitBoots(
	now time.Time, create []*environment, next time.Duration,
) ([]*environment, time.Duration) {
	create = slices.DeleteFunc(create, func(e *environment) bool { return e.backoff(now) > 0 })
	for _, e := range s.envs {
		next = earlier(next, e.backoff(now))
	}
	booting, left := s.booting(now)
	return create[:min(len(create), max(0, maxBoots()-booting))], earlier(next, left)
}

// idleTTL is how long a bound box is idle before it makes room for an unbound one.
const idleTTL = time.Minute

// evictIdle evicts the bound box that has been idle the longest, if it has been idle for idleTTL. Otherwise
// it returns how long the box may stay.
func (s *scheduler) evictIdle(now time.Time) time.Duration {
	b := s.oldest(isBound)
	if b == nil {
		return 0
	}
	if left := b.since.Add(idleTTL).Sub(now); left > 0 {
		return left
	}
	s.evict(b)
	return 0
}

// slowBoot is how long a box counts as booting. A box that takes longer is waiting for packages, an image or
// the import of a module, and must not keep boxes of other environments from being created.
const slowBoot = 5 * time.Second

// booting counts the boxes that are booting, and returns how long until the next one no longer counts; 0 if there
// are none.
func (s *scheduler) booting(now time.Time) (n int, next time.Duration) {
	for _, b := range s.boxes {
		if left := b.since.Add(slowBoot).Sub(now); b.state == warming && left > 0 {
			n, next = n+1, earlier(next, left)
		}
	}
	return n, next
}

// maxBoots returns how many boxes may boot at once: each keeps a processor busy.
func maxBoots() int { return max(2, runtime.NumCPU()) }

// earlier returns the shorter of two waits. A wait of 0 means that there is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// refillPace keeps refills from slowing tasks down. While boxes are in use, or were used very recently, one
// box is created at a time, and only after the pool has lacked boxes for a while.
type refillPace struct {
	active       time.Time // when a box was last acquired or released
	lackingSince time.Time // zero if the pool lacks no boxes
}

const (
	idleAfter      = 50 * time.Millisecond // the pool counts as idle this long after its last activity
	maxRefillDelay = time.Second           // tasks delay a refill for at most this long
)

// allowed returns how many more boxes may now be created for refills, or 0 and how long to wait.
func (r *refillPace) allowed(now time.Time, creating, inUse int) (n int, wait time.Duration) {
	untilIdle := r.active.Add(idleAfter).Sub(now)
	if inUse == 0 && untilIdle <= 0 {
		return max(0, maxBoots()-creating), 0
	}
	untilDue := r.lackingSince.Add(maxRefillDelay).Sub(now)
	if untilDue <= 0 {
		return max(0, 1-creating), 0
	}
	if inUse == 0 {
		return 0, min(untilIdle, untilDue)
	}
	return 0, untilDue
}

// bootFailures counts consecutive failures to create a box of an environment, and backs off after them.
type bootFailures struct {
	attempts int
	err      error // the last one
	until    time.Time
}

const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 30 * time.Second

	// maxAttempts is the number of consecutive failures after which requests fail.
	maxAttempts = 3
)

// add counts a failure, and sets the time of the next attempt.
func (f *bootFailures) add(err error, now time.Time) {
	f.attempts++
	if errors.Is(err, context.DeadlineExceeded) { // requests have waited long enough
		f.attempts = max(f.attempts, maxAttempts)
	}
	f.err = err
	delay := min(maxBackoff, minBackoff<<min(f.attempts-1, 16))
	f.until = now.Add(delay/2 + rand.N(delay/2)) //nolint:gosec // jitter needs no secure randomness
}
