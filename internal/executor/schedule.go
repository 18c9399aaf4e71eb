package executor

import (
	"slices"
	"time"
)

// A scheduler decides which request gets which box, and which boxes are created and destroyed. It starts
// nothing itself. Its methods are called with Pool.mu held.
type scheduler struct {
	opts      PoolOptions
	envs      []*environment     // at least one
	boxes     map[int]*pooledBox // by slot; a box that is being destroyed keeps its slot
	discarded []*pooledBox       // boxes that Pool.Run has yet to destroy
	unclean   []*pooledBox       // boxes that Pool.Run has yet to clean
	waiting   []*acquireRequest  // in order of arrival
	memoryMB  int                // limits of all boxes in use or being cleaned, added up
	closed    error              // wraps ErrPoolClosed; nil while the pool accepts requests
	stats     PoolStats
	refills   refillPace
}

// An acquireRequest waits for a box. It gets exactly one result.
type acquireRequest struct {
	env         *environment
	key         Key
	memoryMB    int
	since       time.Time
	lacksMemory bool               // the memory limit blocked it in the last schedule
	result      chan acquireResult // buffered
}

type acquireResult struct {
	box *pooledBox
	err error
}

func (r *acquireRequest) fail(err error) { r.result <- acquireResult{err: err} }

// schedule assigns boxes to waiting requests, in order of arrival. It returns the environments of the boxes
// to create now, and how long to wait before it is called again; 0 means until the next change. It may be called
// at any time.
//
// Each request takes a bound box that it may share (see Key), or waits for one that is about to be clean, or takes a
// ready box. Otherwise it reserves, in this order, a box that is being created, a free slot, a slot that is being
// freed, or a box that it may share and that is being cleaned; failing that, an idle box is evicted. Later requests
// cannot use what is reserved. A request that does not fit into the memory limit blocks all later ones; otherwise
// small tasks would starve large ones.
func (s *scheduler) schedule() (create []*environment, next time.Duration) {
	now := time.Now()
	arriving, freeing := map[*environment]int{}, s.count(destroying)
	for _, e := range s.envs {
		arriving[e] = s.countOf(e, warming)
	}
	free, reserved := s.free(), make(map[*pooledBox]bool)
	unserved := s.waiting[:0]
	for i, r := range s.waiting {
		if s.exceedsMemory(r) {
			for _, later := range s.waiting[i:] {
				later.lacksMemory = true
			}
			unserved = append(unserved, s.waiting[i:]...)
			break
		}
		r.lacksMemory = false
		box := s.idleBoxFor(r)
		switch {
		case (box == nil || !isBound(box)) && s.reserveCleaning(r.key, reserved, true):
		case box != nil:
			s.assign(box, r, now)
			continue
		case arriving[r.env] > 0:
			arriving[r.env]--
		case s.unavailable(r.env, create, now):
			r.fail(&UnavailableError{Attempts: r.env.failures.attempts, Err: r.env.failures.err})
			continue
		case free > 0:
			free--
			create = append(create, r.env)
		case freeing > 0:
			freeing--
		case s.reserveCleaning(r.key, reserved, false):
		default:
			if idle := s.evictable(r.env); idle != nil {
				s.evict(idle)
			}
		}
		unserved = append(unserved, r)
	}
	clear(s.waiting[len(unserved):])
	s.waiting = unserved
	s.trimIdle()
	return s.refill(now, create, arriving, free)
}

func (s *scheduler) exceedsMemory(r *acquireRequest) bool {
	return s.opts.MemoryMBTotal > 0 && s.memoryMB+r.memoryMB > s.opts.MemoryMBTotal
}

// unavailable reports whether a request must fail because boxes of its environment cannot be created. A
// request does not fail while a box of the environment is acquired or cleaned, because this request may get that box.
// Nor does it fail if the next attempt to create a box would be for this request.
func (s *scheduler) unavailable(e *environment, create []*environment, now time.Time) bool {
	ownAttempt := e.backoff(now) == 0 && s.countOf(e, warming) == 0 && !slices.Contains(create, e)
	return e.failures.attempts >= maxAttempts && !ownAttempt && s.countOf(e, acquired)+s.countOf(e, cleaning) == 0
}

// reserveCleaning reserves a box that is being cleaned and that requests with this key may share; if expected is set,
// only one whose report is expected within reportTime. It returns false if each such box is reserved.
func (s *scheduler) reserveCleaning(key Key, reserved map[*pooledBox]bool, expected bool) bool {
	for _, b := range s.boxes {
		if b.state == cleaning && !reserved[b] && b.key.shares(key) && (b.expected || !expected) {
			reserved[b] = true
			return true
		}
	}
	return false
}

// removeRequest removes a request from the queue. It returns false if the request already has its result.
func (s *scheduler) removeRequest(r *acquireRequest) bool {
	i := slices.Index(s.waiting, r)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// idleBoxFor returns the live idle box with the highest rating for a request, or nil. Of boxes with the same rating it
// returns the most recently used one if they are bound, and otherwise the oldest one. It discards dead boxes that it
// finds.
func (s *scheduler) idleBoxFor(r *acquireRequest) *pooledBox {
	for {
		var best *pooledBox
		bestRating := 0
		for _, b := range s.boxes {
			rating := b.ratingFor(r)
			if rating == 0 || rating < bestRating {
				continue
			}
			if rating > bestRating || b.since.After(best.since) == (b.state == bound) {
				best, bestRating = b, rating
			}
		}
		if best == nil || best.runner.alive() {
			return best
		}
		s.stats.Died++
		s.discard(best)
	}
}

// ratingFor rates an idle box for a request: 3 if its key is the request's, so that it last served the same workspace,
// 2 if the keys differ only in the workspace, 1 if it is unbound, 0 if the request cannot use it.
func (b *pooledBox) ratingFor(r *acquireRequest) int {
	switch {
	case b.state == bound && b.key == r.key:
		return 3
	case b.state == bound && b.key.shares(r.key):
		return 2
	case b.state == ready && b.env == r.env:
		return 1
	}
	return 0
}

// assign acquires an idle box for a request.
func (s *scheduler) assign(b *pooledBox, r *acquireRequest, now time.Time) {
	b.cold = b.since.After(r.since) && b.state == ready
	b.state, b.key, b.since = acquired, r.key, now
	b.memoryMB, b.inUse = r.memoryMB, true
	s.memoryMB += r.memoryMB
	s.refills.active = now
	s.stats.Acquires++
	s.stats.WaitTime += now.Sub(r.since)
	if b.cold {
		s.stats.ColdAcquires++
	}
	s.trace("acquired", b, "")
	r.result <- acquireResult{box: b}
}

// unassign makes an acquired or cleaned box an idle one, bound to its key.
func (s *scheduler) unassign(b *pooledBox) {
	b.since = time.Now()
	s.refills.active = b.since
	s.memoryMB -= b.memoryMB
	b.memoryMB = 0
	b.state = bound
}

// discard takes a box out of use permanently. Pool.Run then destroys it.
func (s *scheduler) discard(b *pooledBox) {
	if b.state == destroying {
		return
	}
	if b.state == acquired || b.state == cleaning {
		s.unassign(b)
	}
	b.state = destroying
	s.stats.Discarded++
	s.discarded = append(s.discarded, b)
	s.trace("discarded", b, "")
}

// evict discards an idle box to make room for another.
func (s *scheduler) evict(b *pooledBox) {
	s.stats.Evicted++
	s.trace("evicted", b, "")
	s.discard(b)
}

// evictable returns the box to evict for a request of an environment: the bound box that has been idle the
// longest, else an unbound box of another environment.
func (s *scheduler) evictable(e *environment) *pooledBox {
	if b := s.oldest(isBound); b != nil {
		return b
	}
	return s.oldest(func(b *pooledBox) bool { return b.state == ready && b.env != e })
}

// oldest returns the matching box with the least recent change of state, or nil.
func (s *scheduler) oldest(match func(*pooledBox) bool) *pooledBox {
	var oldest *pooledBox
	for _, b := range s.boxes {
		if match(b) && (oldest == nil || b.since.Before(oldest.since)) {
			oldest = b
		}
	}
	return oldest
}

// count returns the number of boxes in a state.
func (s *scheduler) count(state boxState) int {
	n := 0
	for _, b := range s.boxes {
		if b.state == state {
			n++
		}
	}
	return n
}

// inUse returns the number of boxes that tasks hold, or that are being cleaned after one.
func (s *scheduler) inUse() int { return s.count(acquired) + s.count(cleaning) }

// countOf returns the number of an environment's boxes in a state.
func (s *scheduler) countOf(e *environment, state boxState) int {
	n := 0
	for _, b := range s.boxes {
		if b.env == e && b.state == state {
			n++
		}
	}
	return n
}

func (s *scheduler) trace(step string, b *pooledBox, task string) {
	if s.opts.Trace != nil {
		s.opts.Trace(PoolEvent{Step: step, BoxID: b.id, Tenant: b.key.Tenant, Task: task})
	}
}

// close fails all requests, present and future, and discards all boxes.
func (s *scheduler) close(reason error) {
	s.closed = reason
	for _, r := range s.waiting {
		r.fail(reason)
	}
	s.waiting, s.unclean = nil, nil
	for _, b := range s.boxes {
		if b.state != warming { // Pool.created discards warming boxes
			s.discard(b)
		}
	}
}
