package jobs

import (
	"slices"
	"time"
)

// scheduler chooses the lane from which a free slot fetches next: by priority first, then by the turns of the tenants,
// as the type turns decides. A tenant with a warm box may overtake one whose box would have to be created in place of
// another tenant's, for a limited time, so that no tenant starves. It is not safe for concurrent use.
type scheduler struct {
	lanes    map[lane]*laneState
	turns    [3]*turns       // by index in priorities
	held     func(lane) bool // whether no task of a lane may start now; nil if no lane is held
	queues   [3][]*laneState // lanes to fetch from, in the order in which they came; by index in priorities
	picks    uint
	lastDone time.Time // when the latest run ended
}

// laneState is what a worker assumes about a lane.
type laneState struct {
	lane
	turns   *turns   // the turns of the lane's priority
	account *account // the tenant's account in turns
	want    int      // messages worth fetching
	queued  bool     // whether it is in scheduler.queues
	pending int      // messages behind the latest one delivered, as the server counted
	running int      // messages that this worker processes

	overtaken time.Time // when another lane first overtook it; zero if none has
}

const (
	maxOvertaken = 250 * time.Millisecond // how long others may overtake a lane
	warmWait     = 5 * time.Millisecond   // how long a slot waits after a run for the tenant's next task
)

func newScheduler() *scheduler {
	return &scheduler{lanes: map[lane]*laneState{}, turns: [3]*turns{newTurns(), newTurns(), newTurns()}}
}

func (s *scheduler) state(l lane) *laneState {
	st, ok := s.lanes[l]
	if !ok {
		ts := s.turns[max(0, slices.Index(priorities, l.priority))]
		st = &laneState{lane: l, turns: ts, account: ts.of(l.tenant)}
		s.lanes[l] = st
	}
	return st
}

// expect notes that the lane has at least n messages to fetch.
func (s *scheduler) expect(l lane, n int) {
	st := s.state(l)
	st.want = max(st.want, n)
	s.enqueue(st)
}

// wake notes that one more message was published to the lane.
func (s *scheduler) wake(l lane) {
	st := s.state(l)
	st.want++
	s.enqueue(st)
}

func (s *scheduler) enqueue(st *laneState) {
	if st.queued || st.want <= 0 {
		return
	}
	if i := slices.Index(priorities, st.priority); i >= 0 {
		st.queued = true
		st.turns.activate(st.account)
		s.queues[i] = append(s.queues[i], st)
	}
}

// next removes and returns the lane to fetch from. Tenants in warm may overtake others. If ok is false, a
// positive wait is how long to wait before calling next again; otherwise call it after the next change.
func (s *scheduler) next(now time.Time, warm map[string]bool) (l lane, ok bool, wait time.Duration) {
	for _, priority := range orderOf(s.picks + 1) {
		queue := s.dropHeld(priority)
		if len(queue) == 0 {
			continue
		}
		i, wait := s.choose(priority, now, warm)
		if wait > 0 {
			return lane{}, false, wait
		}
		s.picks++
		st := queue[i]
		s.queues[priority] = slices.Delete(queue, i, i+1)
		st.turns.begin(st.tenant, st.account)
		s.unqueue(st)
		st.want = max(0, st.want-1)
		s.enqueue(st) // behind the others
		return st.lane, true, 0
	}
	return lane{}, false, 0
}

// dropHeld removes from a queue the lanes whose tasks may not start now. The next scan adds them again.
func (s *scheduler) dropHeld(priority int) []*laneState {
	if s.held == nil {
		return s.queues[priority]
	}
	queue := slices.DeleteFunc(s.queues[priority], func(st *laneState) bool {
		if !s.held(st.lane) {
			return false
		}
		st.want = 0
		s.unqueue(st)
		return true
	})
	s.queues[priority] = queue
	return queue
}

func (s *scheduler) unqueue(st *laneState) {
	st.queued, st.overtaken = false, time.Time{}
	st.turns.deactivate(st.account)
}

// choose returns the index of a queue's next lane, or how long to wait for a task of a warm tenant.
func (s *scheduler) choose(priority int, now time.Time, warm map[string]bool) (i int, wait time.Duration) {
	queue, turn := s.queues[priority], 0
	for j, st := range queue {
		if st.account.charged() < queue[turn].account.charged() {
			turn = j
		}
	}
	first := queue[turn]
	s.turns[priority].level = first.account.charged()
	if len(warm) == 0 || warm[first.tenant] {
		return turn, 0
	}
	if first.overtaken.IsZero() {
		first.overtaken = now
	}
	left := first.overtaken.Add(maxOvertaken).Sub(now)
	if left <= 0 {
		return turn, 0
	}
	if i := slices.IndexFunc(queue, func(st *laneState) bool { return warm[st.tenant] }); i >= 0 {
		return i, 0
	}
	return 0, max(0, min(left, s.lastDone.Add(warmWait).Sub(now)))
}

// orderOf returns the order of priorities for a pick: high, normal, low, except that every fourth pick begins
// with normal and every sixteenth with low, so that neither starves.
func orderOf(pick uint) [3]int {
	switch {
	case pick%16 == 0:
		return [3]int{2, 1, 0}
	case pick%4 == 0:
		return [3]int{1, 2, 0}
	}
	return [3]int{0, 1, 2}
}

// started notes that a message was delivered, with pending ones behind it.
func (s *scheduler) started(l lane, pending int) {
	st := s.state(l)
	st.running++
	st.pending = pending
	st.want = pending
	s.enqueue(st)
}

// empty notes that a fetch returned nothing: the lane is empty, or at the tenant's cap.
func (s *scheduler) empty(l lane, took time.Duration) {
	st := s.state(l)
	st.want = 0
	st.turns.endEmpty(l.tenant, took)
	s.forget(st)
}

// done notes that a run ended, which makes room below the tenant's cap.
func (s *scheduler) done(l lane, now time.Time, took time.Duration) {
	s.lastDone = now
	st := s.state(l)
	st.turns.end(l.tenant, took)
	st.running--
	if st.pending > 0 {
		s.expect(l, 1)
	}
	s.forget(st)
}

// forget removes a lane without tasks. If no lane is left, it also forgets what the tenants have used.
func (s *scheduler) forget(st *laneState) {
	if st.running > 0 || st.queued || st.want > 0 || st.pending > 0 {
		return
	}
	delete(s.lanes, st.lane)
	if len(s.lanes) > 0 {
		return
	}
	for _, ts := range s.turns {
		clear(ts.tenants)
		ts.level = 0
	}
}

// counted notes that TASKS holds n messages of the lane, including those of running tasks.
func (s *scheduler) counted(l lane, n int) {
	st := s.state(l)
	if n > st.running {
		s.expect(l, 1)
	} else if st.running == 0 && !st.queued {
		delete(s.lanes, l)
	}
}
