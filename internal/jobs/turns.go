package jobs

import "time"

// turns decides whose turn it is among the tenants with tasks of one priority, by what each tenant has used: the tenant
// with the fewest charged seconds of slots in relation to its weight is first. A run is charged when it begins, with an
// estimate, and corrected when it ends. A tenant that had no tasks begins at the level of the others: it has
// not saved up turns, and need not wait because it once used slots that were idle. turns is not safe for concurrent
// use.
type turns struct {
	weight  func(tenant string) float64
	tenants map[string]*account
	level   float64       // the charge of the tenant whose turn was the latest
	mean    time.Duration // mean time of the latest runs of all tenants; the estimate for a tenant without runs
}

// account is what a tenant has used, in seconds divided by its weight.
type account struct {
	ended   float64       // for runs that have ended
	running float64       // the estimates of runs that have not ended
	runs    int           // how many these are
	active  int           // lanes with messages to fetch
	mean    time.Duration // mean time of the tenant's latest runs; 0 if none has ended
}

const (
	firstEstimate = 100 * time.Millisecond // estimate of a run's time before any run has ended
	leastCharge   = time.Millisecond       // least charge of a run, for the work of the queue
	newestShare   = 0.2                    // weight of the newest run in a mean
)

func newTurns() *turns {
	return &turns{
		weight: func(string) float64 { return 1 }, tenants: map[string]*account{}, mean: firstEstimate,
	}
}

func (s *account) charged() float64 { return s.ended + s.running }

// of returns a tenant's account.
func (ts *turns) of(tenant string) *account {
	s, ok := ts.tenants[tenant]
	if !ok {
		s = &account{}
		ts.tenants[tenant] = s
	}
	return s
}

// activate notes that a lane of the tenant has messages to fetch.
func (ts *turns) activate(s *account) {
	if s.active == 0 && s.runs == 0 {
		s.ended = max(s.ended, ts.level)
	}
	s.active++
}

// deactivate notes that a lane of the tenant has no messages to fetch.
func (ts *turns) deactivate(s *account) { s.active-- }

// begin charges a tenant for a run that begins.
func (ts *turns) begin(tenant string, s *account) {
	estimate := s.mean
	if estimate == 0 {
		estimate = ts.mean
	}
	s.running += max(estimate, leastCharge).Seconds() / ts.weight(tenant)
	s.runs++
}

// end replaces the estimate of a run with the time that it took.
func (ts *turns) end(tenant string, took time.Duration) {
	s := ts.correct(tenant, took)
	ts.mean = newMean(ts.mean, took)
	if s.mean == 0 {
		s.mean = took
	}
	s.mean = newMean(s.mean, took)
}

// endEmpty replaces the estimate of a run with the time that the slot waited, because no message came.
func (ts *turns) endEmpty(tenant string, took time.Duration) { ts.correct(tenant, took) }

// correct replaces the estimate of one of a tenant's runs with a time.
func (ts *turns) correct(tenant string, took time.Duration) *account {
	s := ts.of(tenant)
	s.ended += max(took, leastCharge).Seconds() / ts.weight(tenant)
	if s.runs--; s.runs <= 0 {
		s.runs, s.running = 0, 0 // without rounding errors
		return s
	}
	s.running -= s.running / float64(s.runs+1)
	return s
}

// newMean moves a mean towards the newest value.
func newMean(mean, newest time.Duration) time.Duration {
	return mean + time.Duration(newestShare*float64(newest-mean))
}
