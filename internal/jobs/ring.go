package jobs

import "slices"

// ring chooses which lane a free slot looks at next: priorities before fairness, and tenants of one
// priority in turn. It is owned by one goroutine. It is the place for weights and for a preference
// of tenants with a warm box.
type ring struct {
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
}

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

// next takes the lane whose turn it is.
func (r *ring) next() (lane, bool) {
	r.picks++
	for _, class := range r.order() {
		if len(r.classes[class]) == 0 {
			continue
		}
		s := r.classes[class][0]
		r.classes[class] = slices.Delete(r.classes[class], 0, 1)
		s.waiting = false
		s.want = max(0, s.want-1)
		r.enter(s) // behind the others
		return s.lane, true
	}
	return lane{}, false
}

// order is high, normal, low, but for every fourth pick, which begins with normal, and every
// sixteenth, which begins with low: nobody starves.
func (r *ring) order() [3]int {
	switch {
	case r.picks%16 == 0:
		return [3]int{2, 1, 0}
	case r.picks%4 == 0:
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
func (r *ring) ended(l lane) {
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
