package jobs

import (
	"slices"
	"time"
)

// ring chooses which lane a free slot looks at next: priorities before fairness, and tenants of one
// priority in turn, but that one whose sandbox is there goes before one for whom another tenant's must
// be destroyed and a new one made: for a while, so that nobody starves. It is owned by one goroutine.
type ring struct {
	last    time.Time       // when the latest run ended
	classes [3][]*readiness // by index in priorities, in turn order
	lanes   map[lane]*readiness
	picks   uint
}

// readiness is what a worker believes about a lane.
type readiness struct {
	lane
	want    int  // how many entries are worth asking for
	waiting bool // it is in its class's turn order
	pending int  // entries behind the latest one delivered, as the server counted
	running int  // entries this worker holds

	passed time.Time // when another went before it first; zero: none has
}

const (
	passing = 250 * time.Millisecond // for how long others may go before a lane whose turn it is
	linger  = 5 * time.Millisecond   // after a run: its tenant's next task may be on its way
)

func newRing() *ring { return &ring{lanes: map[lane]*readiness{}} }

func (r *ring) at(l lane) *readiness {
	s, ok := r.lanes[l]
	if !ok {
		s = &readiness{lane: l}
		r.lanes[l] = s
	}
	return s
}

// ask makes want at least n and puts the lane in line.
func (r *ring) ask(l lane, n int) {
	s := r.at(l)
	s.want = max(s.want, n)
	r.enter(s)
}

// bell counts one more entry.
func (r *ring) bell(l lane) {
	s := r.at(l)
	s.want++
	r.enter(s)
}

func (r *ring) enter(s *readiness) {
	if s.waiting || s.want <= 0 {
		return
	}
	class := slices.Index(priorities, s.priority)
	if class < 0 {
		return
	}
	s.waiting = true
	r.classes[class] = append(r.classes[class], s)
}

// next takes the lane whose turn it is; kept are the tenants that go before others, nil when it does
// not matter. With none there may be a time after which to ask again.
func (r *ring) next(now time.Time, kept map[string]bool) (l lane, ok bool, wait time.Duration) {
	for _, class := range r.orderOf(r.picks + 1) {
		line := r.classes[class]
		if len(line) == 0 {
			continue
		}
		i, wait := r.choose(line, now, kept)
		if wait > 0 {
			return lane{}, false, wait
		}
		r.picks++
		s := line[i]
		r.classes[class] = slices.Delete(line, i, i+1)
		s.waiting, s.passed = false, time.Time{}
		s.want = max(0, s.want-1)
		r.enter(s) // behind the others
		return s.lane, true, 0
	}
	return lane{}, false, 0
}

// choose returns the index of the lane that goes next, or how long to wait for one that should.
func (r *ring) choose(line []*readiness, now time.Time, kept map[string]bool) (i int, wait time.Duration) {
	first := line[0]
	if len(kept) == 0 || kept[first.tenant] {
		return 0, 0
	}
	if first.passed.IsZero() {
		first.passed = now
	}
	left := first.passed.Add(passing).Sub(now)
	if left <= 0 {
		return 0, 0
	}
	if i := slices.IndexFunc(line, func(s *readiness) bool { return kept[s.tenant] }); i > 0 {
		return i, 0
	}
	return 0, max(0, min(left, r.last.Add(linger).Sub(now)))
}

// orderOf is high, normal, low, but for every fourth pick, which begins with normal, and every
// sixteenth, which begins with low: nobody starves.
func (r *ring) orderOf(pick uint) [3]int {
	switch {
	case pick%16 == 0:
		return [3]int{2, 1, 0}
	case pick%4 == 0:
		return [3]int{1, 2, 0}
	}
	return [3]int{0, 1, 2}
}

// took notes a delivery that left pending entries behind it.
func (r *ring) took(l lane, pending int) {
	s := r.at(l)
	s.running++
	s.pending = pending
	s.want = pending
	r.enter(s)
}

// empty notes that there was nothing to have, be it for the tenant's cap.
func (r *ring) empty(l lane) { r.at(l).want = 0 }

// ended notes the end of a run. It made room below the tenant's cap.
func (r *ring) ended(l lane, now time.Time) {
	r.last = now
	s := r.at(l)
	s.running--
	if s.pending > 0 {
		r.ask(l, 1)
	}
	if s.running == 0 && !s.waiting && s.want == 0 && s.pending == 0 {
		delete(r.lanes, l)
	}
}

// seen notes that the stream holds n entries of the lane, those that run included.
func (r *ring) seen(l lane, n int) {
	s := r.at(l)
	if n > s.running {
		r.ask(l, 1)
	} else if s.running == 0 && !s.waiting {
		delete(r.lanes, l)
	}
}
