package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// request is a lease that waits for a box. Exactly one answer is sent.
type request struct {
	env         *environment
	key         Key
	memoryMB    int
	since       time.Time
	lacksMemory bool               // as of the last schedule
	result      chan acquireResult // buffered
}

type acquireResult struct {
	box *pooledBox
	err error
}

func (w *request) refuse(err error) { w.result <- acquireResult{err: err} }

// failures remembers failures to make a box, to slow down and to say why.
type failures struct {
	attempts int
	err      error
	until    time.Time
}

const (
	firstPause = 200 * time.Millisecond
	longPause  = 30 * time.Second

	// givingUp is how often in a row a box may fail to be made before leases that
	// need one are told.
	givingUp = 3
)

func (t *failures) add(err error, now time.Time) {
	t.attempts++
	if errors.Is(err, context.DeadlineExceeded) { // leases have waited enough
		t.attempts = max(t.attempts, givingUp)
	}
	t.err = err
	pause := min(longPause, firstPause<<min(t.attempts-1, 16))
	t.until = now.Add(pause/2 + rand.N(pause/2)) //nolint:gosec // spreads attempts, hides nothing
}

// pace keeps refilling from getting in the way of tasks: while boxes are leased, or
// were a moment ago, one box at a time is made, and not before the pool has lacked
// boxes for a while.
type pace struct {
	busy  time.Time // last lease or release
	since time.Time // when the pool began to lack boxes; zero: it does not
}

const (
	quiet    = 50 * time.Millisecond // without a lease or release: idle again
	patience = time.Second           // longest time that tasks hold up a refill
)

// allowed returns how many boxes may be made ahead now while making are under way
// and leased are in use, and otherwise when to look again.
func (q *pace) allowed(now time.Time, making, leased int) (n int, wait time.Duration) {
	idle := q.busy.Add(quiet).Sub(now)
	if leased == 0 && idle <= 0 {
		return max(0, parallel()-making), 0
	}
	overdue := q.since.Add(patience).Sub(now)
	if overdue <= 0 {
		return max(0, 1-making), 0
	}
	if leased == 0 {
		return 0, min(idle, overdue)
	}
	return 0, overdue
}

// slowBoot is how long a box keeps a processor busy at most: one that takes longer waits for packages, an
// image, or a module that does not end, and must not keep boxes of other environments from being made.
const slowBoot = 5 * time.Second

// booting is how many boxes being made keep a processor busy, and when it is one less (0: it is none).
func (p *Pool) booting(now time.Time) (n int, next time.Duration) {
	for _, b := range p.boxes {
		if left := b.used.Add(slowBoot).Sub(now); b.state == warming && left > 0 {
			n, next = n+1, sooner(next, left)
		}
	}
	return n, next
}

// sooner is the shorter of two times to wait, of which 0 is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// parallel is how many boxes are made at once: it takes a processor to boot one.
func parallel() int { return max(2, runtime.NumCPU()) }

// schedule gives boxes to waiting leases, first come, first served, and returns of which
// environments to make boxes now, and after which time to look again (0: when something
// happens). It may be called whenever anything has changed; p.mu is held.
//
// Each lease in turn takes a box bound to its key, or an unbound one, or counts on
// the next box that is being made, on a free slot, on a slot that is being freed, or
// on that of the longest idle box of somebody else. What one counts on is not there
// for those behind it. A lease for whose memory there is no room yet holds up those
// behind it: otherwise small tasks would starve large ones.
func (p *Pool) schedule() (create []*environment, next time.Duration) {
	now := time.Now()
	coming, freeing := map[*environment]int{}, p.count(destroying)
	for _, e := range p.envs {
		coming[e] = p.countOf(e, warming)
	}
	free := p.opts.Max - len(p.boxes)
	kept := p.waiting[:0]
	for i, w := range p.waiting {
		w.lacksMemory = p.opts.MemoryMBTotal > 0 && p.memoryMB+w.memoryMB > p.opts.MemoryMBTotal
		if w.lacksMemory {
			for _, behind := range p.waiting[i:] {
				behind.lacksMemory = true
			}
			kept = append(kept, p.waiting[i:]...)
			break
		}
		b, failures := p.pick(w), w.env.failures
		switch {
		case b != nil:
			p.lend(b, w, now)
			continue
		case coming[w.env] > 0:
			coming[w.env]--
		case failures.attempts >= givingUp && (w.env.paused(now) > 0 || p.countOf(w.env, warming) > 0 || slices.Contains(create, w.env)) && p.countOf(w.env, acquired) == 0: // the next attempt may be its own
			w.refuse(&UnavailableError{Attempts: failures.attempts, Err: failures.err})
			continue
		case free > 0:
			free--
			create = append(create, w.env)
		case freeing > 0:
			freeing--
		default:
			if victim := p.victim(w.env); victim != nil {
				p.evict(victim)
			}
		}
		kept = append(kept, w)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	return p.refill(now, create, coming, free)
}

// refill adds to the boxes that leases wait for those that the pool lacks. coming are those being
// made that nobody counts on.
func (p *Pool) refill(now time.Time, create []*environment, coming map[*environment]int, free int) ([]*environment, time.Duration) {
	if p.closed != nil {
		return nil, 0
	}
	lacking := map[*environment]int{}
	all := 0
	for _, e := range p.envs {
		lacking[e] = max(0, e.MinReady-p.countOf(e, ready)-coming[e])
		if e.root == nil { // the others would only wait for the first one's Prepare
			lacking[e] = min(lacking[e], max(0, 1-p.countOf(e, warming)))
		}
		all += lacking[e]
	}
	var next time.Duration
	switch all {
	case 0:
		p.pace.since = time.Time{}
	default:
		if p.pace.since.IsZero() {
			p.pace.since = now
		}
		var n int
		booting, _ := p.booting(now)
		making := booting + len(create)
		n, next = p.pace.allowed(now, making, p.count(acquired))
		if p.stats.Created == 0 { // the first one soon, rather than several together later
			n = min(n, max(0, 1-making))
		}
		ahead := p.ahead(now, lacking, min(n, free))
		create = append(create, ahead...)
		if n > len(ahead) && len(ahead) < all && p.count(destroying) == 0 {
			next = p.reclaim(now)
		}
	}
	return p.bearable(now, create, next)
}

// ahead chooses of which environments to make up to n boxes that nobody waits for, the emptiest first.
func (p *Pool) ahead(now time.Time, lacking map[*environment]int, n int) []*environment {
	var chosen []*environment
	for range n {
		var most *environment
		for _, e := range p.envs {
			if lacking[e] > 0 && e.paused(now) == 0 && (most == nil || lacking[e] > lacking[most]) {
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

// bearable leaves out what is not to be made yet, because it failed a moment ago or because the
// processors are busy making others.
func (p *Pool) bearable(now time.Time, create []*environment, next time.Duration) ([]*environment, time.Duration) {
	var due []*environment
	for _, e := range create {
		pause := e.paused(now)
		if pause == 0 {
			due = append(due, e)
		} else {
			next = sooner(next, pause)
		}
	}
	for _, e := range p.envs { // what is lacking is looked at again when its pause is over
		next = sooner(next, e.paused(now))
	}
	booting, until := p.booting(now)
	return due[:min(len(due), max(0, parallel()-booting))], sooner(next, until)
}

// reclaim evicts a box that nobody has asked for since IdleTTL, or says when there
// may be one.
func (p *Pool) reclaim(now time.Time) time.Duration {
	b := p.oldestIdle()
	if b == nil {
		return 0
	}
	if left := b.used.Add(p.opts.IdleTTL).Sub(now); left > 0 {
		return left
	}
	p.evict(b)
	return 0
}

func (p *Pool) evict(b *pooledBox) {
	p.stats.Evicted++
	p.trace("evicted", b, "")
	p.discard(b)
}

// pick returns a live idle box for a lease: one that is bound to its key, the most
// recently used, or an unbound one. Dead ones that it comes across are burned.
func (p *Pool) pick(w *request) *pooledBox {
	for {
		var best *pooledBox
		for _, b := range p.boxes {
			if b.state == bound && b.key == w.key && (best == nil || best.state == ready || b.used.After(best.used)) {
				best = b
			}
			if b.state == ready && b.env == w.env && (best == nil || best.state == ready && b.used.Before(best.used)) {
				best = b
			}
		}
		if best == nil || best.runner.alive() {
			return best
		}
		p.stats.Died++
		p.discard(best)
	}
}

func (p *Pool) lend(b *pooledBox, w *request, now time.Time) {
	b.cold = b.used.After(w.since) && b.state == ready
	b.state, b.key, b.used = acquired, w.key, now
	b.memoryMB, b.inUse = w.memoryMB, true
	p.memoryMB += w.memoryMB
	p.pace.busy = now
	p.stats.Acquires++
	p.stats.Waited += now.Sub(w.since)
	if b.cold {
		p.stats.ColdAcquires++
	}
	p.trace("acquired", b, "")
	w.result <- acquireResult{box: b}
}

// unassign takes a box from its lease; p.mu is held.
func (p *Pool) unassign(b *pooledBox) {
	b.used = time.Now()
	p.pace.busy = b.used
	p.memoryMB -= b.memoryMB
	b.memoryMB = 0
	b.state = bound
}

// discard takes a box out of use for good; Run destroys it. p.mu is held.
func (p *Pool) discard(b *pooledBox) {
	if b.state == destroying {
		return
	}
	if b.state == acquired {
		p.unassign(b)
	}
	b.state = destroying
	p.stats.Discarded++
	p.doomed = append(p.doomed, b)
	p.trace("discarded", b, "")
	p.wakeRun()
}

// victim is the box whose place a lease of an environment may have: the longest idle one, else one of
// another environment that has served nobody.
func (p *Pool) victim(e *environment) *pooledBox {
	if b := p.oldestIdle(); b != nil {
		return b
	}
	var oldest *pooledBox
	for _, b := range p.boxes {
		if b.state == ready && b.env != e && (oldest == nil || b.used.Before(oldest.used)) {
			oldest = b
		}
	}
	return oldest
}

func (p *Pool) oldestIdle() *pooledBox {
	var oldest *pooledBox
	for _, b := range p.boxes {
		if b.state == bound && (oldest == nil || b.used.Before(oldest.used)) {
			oldest = b
		}
	}
	return oldest
}

func (p *Pool) count(s boxState) int {
	n := 0
	for _, b := range p.boxes {
		if b.state == s {
			n++
		}
	}
	return n
}

// removeRequest takes a request out of the queue; false: it has been answered. p.mu is held.
func (p *Pool) removeRequest(w *request) bool {
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return true
}
