package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// The model runs one task on the real queue and a real workspace, in processes that stop before each effect. It decides
// which process continues, and when a message is delivered again, a timer is due or the task expires. Then it checks
// that the record agrees with the workspace, whatever the order was.
//
//	go test ./internal/jobs -run Model                                # paths with few switches, and random ones
//	go test ./internal/jobs -run Model -args -model.switches 3        # more
//	go test ./internal/jobs -run ModelRandom -rapid.checks 10000

var modelSwitches = flag.Int("model.switches", 1, "how often TestModel switches from a process that could continue")

const programGate = "run program"

// mutant is a fault of the protocol that the model must find.
type mutant string

const (
	noMutant          mutant = ""
	mutantNoFence     mutant = "no fence"
	mutantOnlyLooks   mutant = "a fence that only looks for a commit"
	mutantNoCondition mutant = "records are written without a condition"
)

// scenario is what may happen on a path.
type scenario struct {
	name        string
	attempts    int
	backoff     float64       // seconds; more than one means that the task waits in DELAYED
	expires     time.Duration // after which the task expires; 0 means never
	redelivered int           // how often the ack wait passes while a worker is alive
	cancels     int
	redrives    int
	resubmits   int
	records     int // how often RecordTasks tries to create the record
	ends        []handlerEnd
	large       bool // has many paths: walked with one switch less
	mutant      mutant
}

// world is one task, its workspace and the fleet's processes, on one path.
type world struct {
	scenario
	*fleet
	dir  string
	lane lane
	ref  state.Ref
	task string

	workers                       []*process
	submitter, canceller, redrive *process
	recorder, successor           *process
	repo                          *state.Store // the model's own store
	bucket                        *mem.Objects

	n           int // paths
	deliverable int // messages that a worker can fetch, approximately
	timers      int
	letters     int
	expiresAt   time.Time
	expired     bool
	trail       []string
	errs        []error
}

func newWorld(t testing.TB, f *fleet, tenant string, s scenario) *world {
	t.Helper()
	w := &world{scenario: s, fleet: f, dir: t.TempDir(), lane: lane{defaultPool, defaultPriority, tenant}}
	for _, name := range []string{"a", "b"} {
		w.workers = append(w.workers, newProcess(t, w, f, name))
	}
	w.submitter, w.canceller = newProcess(t, w, f, "submitter"), newProcess(t, w, f, "canceller")
	w.redrive, w.recorder = newProcess(t, w, f, "redriver"), newProcess(t, w, f, "recorder")
	w.successor = newProcess(t, w, f, "successor")
	return w
}

func (w *world) processes() []*process {
	return append(slices.Clone(w.workers), w.submitter, w.canceller, w.redrive, w.recorder, w.successor)
}

func (w *world) must(err error) {
	if err != nil {
		w.errs = append(w.errs, err)
	}
}

// written counts what a process has written.
func (w *world) written(kind string) {
	switch kind {
	case "message":
		w.deliverable++
	case "timer":
		w.timers++
	case "dead letter":
		w.letters++
	}
}

// acknowledge sends an acknowledgement to the server and returns its response.
func (w *world) acknowledge(reply string, data []byte) []byte {
	msg, err := w.request(context.Background(), reply, data)
	w.must(err)
	if err != nil {
		return nil
	}
	return msg.Data
}

// begin submits a new task in a new workspace. If the scenario includes RecordTasks, the task has no record yet. It
// returns false if the task expired before it was submitted.
func (w *world) begin() bool {
	w.n++
	w.ref = state.Ref{Tenant: w.lane.tenant, Workspace: fmt.Sprint("w", w.n)}
	w.deliverable, w.timers, w.letters, w.expired, w.trail, w.errs = 0, 0, 0, false, nil, nil
	bucket := mem.New()
	w.bucket, w.repo = bucket, state.New(bucket, state.Options{})
	for _, p := range w.processes() {
		p.reset()
	}
	for _, p := range append(slices.Clone(w.workers), w.successor) {
		p.store = state.New(gatedHead{bucket, p}, state.Options{})
		w.createWorker(p)
	}
	w.submit()
	if !w.submitter.busy() {
		return false
	}
	w.submitter.step() // the message is stored
	if w.records == 0 {
		w.submitter.step() // the record, too
	}
	w.trail = append(w.trail, "submitted")
	return true
}

// createWorker creates the worker of a process.
func (w *world) createWorker(p *process) {
	opts := WorkerOptions{Name: p.name, Attempts: w.attempts, Handler: p.handle}
	if w.mutant != mutantNoFence {
		opts.Fence = p.fence
	}
	p.worker = NewWorker(p.client, opts)
	p.worker.leases.unfenced = w.mutant == mutantNoCondition
}

func (w *world) submit() {
	attrs := []string{"workspace", w.ref.Workspace}
	if w.expires > 0 {
		if w.submitter.runs == 0 {
			w.expiresAt = time.Now().Add(w.expires)
		}
		attrs = append(attrs, "expirytime", w.expiresAt.UTC().Format(time.RFC3339Nano))
	}
	w.submitter.runs++
	data := fmt.Sprintf(`{"code":"x","retry":{"attempts":%d,"backoff_s":%g}}`, w.attempts, w.backoff)
	id := fmt.Sprint("path-", w.n)
	w.task = TaskID(w.lane.tenant, "/test", id)
	w.submitter.start(func(ctx context.Context) {
		_, err := w.submitter.client.Submit(ctx, w.lane.tenant, taskEvent(id, data, attrs...))
		if _, refused := errors.AsType[*RefusedError](err); !refused {
			w.must(err)
		}
	})
}

// action is something that may happen next.
type action struct {
	name    string
	process *process // that does it; nil if it is the server or the clock
	do      func()
}

// actions returns the actions that are possible next. Those of the process last come first.
func (w *world) actions(last *process) []action {
	var all []action
	for _, p := range w.workers {
		all = append(all, w.workerActions(p)...)
	}
	all = append(all, w.once(w.canceller, w.cancels, "cancels", func(ctx context.Context) {
		_, err := w.canceller.client.Cancel(ctx, w.lane.tenant, w.task)
		if !errors.Is(err, ErrUnknownTask) {
			w.must(err)
		}
	})...)
	all = append(all, w.once(w.redrive, min(w.redrives, w.letters), "redrives", func(ctx context.Context) {
		_, err := w.redrive.client.Redrive(ctx, w.lane.tenant, w.task)
		_, refused := errors.AsType[*NotRedrivableError](err)
		if !refused && !errors.Is(err, ErrUnknownTask) {
			w.must(err)
		}
	})...)
	all = append(all, w.once(w.recorder, w.records, "records", w.record)...)
	if s := w.submitter; s.busy() {
		all = append(all, action{s.name + ": " + s.at, s, s.step})
	} else if s.runs <= w.resubmits {
		all = append(all, action{"submits again", s, w.submit})
	}
	// Redrive ends after redriveTime: it writes no record once its timer, which it has stored before, is due.
	if w.timers > 0 && w.redrive.at != "write record" {
		all = append(all, action{"the timer is due", nil, w.due})
	}
	if w.expires > 0 && !w.expired {
		all = append(all, action{"the task expires", nil, w.expire})
	}
	slices.SortStableFunc(all, func(a, b action) int {
		switch {
		case a.process == last && b.process != last:
			return -1
		case a.process != last && b.process == last:
			return 1
		}
		return 0
	})
	return all
}

func (w *world) workerActions(p *process) (all []action) {
	switch {
	case !p.busy() && w.deliverable > 0 && p.fetches < maxFetches:
		all = append(all, action{p.name + " fetches the message", p, func() {
			p.fetches++
			p.start(p.fetch)
		}})
	case p.at == programGate:
		for _, end := range w.ends {
			all = append(all, action{fmt.Sprintf("%s: %s, %s", p.name, p.at, end), p, func() {
				p.outcome = end
				p.step()
			}})
		}
	case p.busy():
		all = append(all, action{p.name + ": " + p.at, p, p.step})
	}
	if p.holds() && w.redelivered > w.redeliveries() {
		all = append(all, action{"the message of " + p.name + " is delivered again", nil, p.redeliver})
	}
	if p.busy() && !p.sentHeartbeat && w.canceller.runs > 0 && p.lease() != nil {
		all = append(all, action{p.name + " sends a heartbeat", nil, p.heartbeat})
	}
	return all
}

// held reports whether a worker holds the message.
func (w *world) held() bool { return slices.ContainsFunc(w.workers, (*process).holds) }

// redeliverAll makes the server deliver all held messages again, as if the ack wait had passed.
func (w *world) redeliverAll() {
	for _, p := range append(slices.Clone(w.workers), w.successor) {
		if p.holds() {
			p.redeliver()
		}
	}
}

// redeliveries returns how often a message was delivered again.
func (w *world) redeliveries() int {
	n := 0
	for _, line := range w.trail {
		if strings.HasSuffix(line, "is delivered again") {
			n++
		}
	}
	return n
}

// once returns the action in which a process performs op, at most n times.
func (w *world) once(p *process, n int, name string, op func(context.Context)) []action {
	switch {
	case p.busy():
		return []action{{p.name + ": " + p.at, p, p.step}}
	case p.runs < n:
		return []action{{p.name + " " + name, p, func() { p.runs++; p.start(op) }}}
	}
	return nil
}

// record is what RecordTasks does with the message.
func (w *world) record(ctx context.Context) {
	c := w.recorder.client
	_, _, err := c.batch(ctx, streamTasks, w.lane.subject(), 1, func(m *nats.Msg) error {
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return err
		}
		return c.createRecord(ctx, m, seq)
	})
	w.must(err)
}

// due moves the task's timers to TASKS, as the server and promote do.
func (w *world) due() {
	w.timers = 0
	for run := range maxFetches + 1 {
		rec := schemas.Record{Tenant: w.lane.tenant, TaskID: w.task, Run: run}
		err := w.promoteNow(context.Background(), storedRecord{Record: rec})
		switch {
		case err == nil:
			w.deliverable++
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			w.must(err)
		}
	}
}

func (w *world) expire() {
	w.expired = true
	<-time.After(time.Until(w.expiresAt))
}

// play performs actions until none is possible. choose returns the index of the next action, or -1 to end.
func (w *world) play(choose func([]action, *process) int) {
	var last *process
	for {
		all := w.actions(last)
		if len(all) == 0 || len(w.errs) > 0 {
			return
		}
		i := choose(all, last)
		if i < 0 {
			return
		}
		a := all[i]
		w.trail = append(w.trail, a.name)
		a.do()
		last = a.process
	}
}

// finish completes the task with a new worker, while all others are stopped. Then the others continue.
func (w *world) finish() (problems []string) {
	stopped := slices.DeleteFunc(w.processes(), func(p *process) bool { return !p.busy() })
	w.redeliverAll()
	w.trail = append(w.trail, "a new worker finishes")
	w.succeed()
	problems = w.check(len(stopped) > 0)
	for _, p := range stopped {
		w.trail = append(w.trail, p.name+" continues")
		for p.busy() && len(w.errs) == 0 {
			p.step()
		}
	}
	w.redeliverAll()
	w.trail = append(w.trail, "the new worker continues")
	w.succeed()
	for _, p := range w.processes() {
		p.kill()
	}
	problems = append(problems, w.check(false)...)
	for _, err := range w.errs {
		problems = append(problems, err.Error())
	}
	return problems
}

// succeed lets the successor run the task until it ends.
func (w *world) succeed() {
	p := w.successor
	p.outcome = commits
	for range 20 {
		if w.timers > 0 {
			w.due()
		}
		if len(w.errs) > 0 || !w.has(streamTasks, w.lane.subject()) {
			return
		}
		p.start(p.fetch)
		for p.busy() && len(w.errs) == 0 {
			p.step()
		}
	}
	w.must(errors.New("the task does not end: a new worker has got 20 messages"))
}

// revisions returns all revisions of the task's record.
func (w *world) revisions() (all []schemas.Record) {
	err := w.readFrom(context.Background(), streamRecords, recordSubject(w.lane.tenant, w.task), 1,
		func(m *nats.Msg) error {
			var rec schemas.Record
			err := json.Unmarshal(m.Data, &rec)
			all = append(all, rec)
			return err
		})
	w.must(err)
	return all
}

// check returns what is wrong with the record and the workspace at the end. stopped says whether some processes are
// stopped, which may have written a dead letter without the record.
func (w *world) check(stopped bool) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	revisions := w.revisions()
	if len(revisions) == 0 {
		return []string{"the task has no record"}
	}
	for i, rec := range revisions[:len(revisions)-1] {
		next := revisions[i+1]
		redriven := rec.Status == schemas.Dead && next.Status == schemas.Queued
		if rec.Status.Terminal() && !redriven {
			problem("the record changed from %s to %s", rec.Status, next.Status)
		}
	}
	rec := revisions[len(revisions)-1]
	log, err := history.Log(context.Background(), w.repo.Repo(), w.ref, 0)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		problem("read the history: %s", err)
	}
	generation := int64(0)
	if rec.Result != nil {
		generation = rec.Result.Workspace.Generation
	}
	switch {
	case !rec.Status.Terminal():
		problem("the task waits forever: its record is %s", rec.Status)
	case len(log) > 1:
		problem("the task has %d commits", len(log))
	case len(log) == 1 && (rec.Status != schemas.Succeeded || generation != log[0].Generation):
		problem("the task has committed generation %d, but its record is %s with generation %d", log[0].Generation,
			rec.Status, generation)
	case len(log) == 0 && generation != 0:
		problem("the record names generation %d, which does not exist", generation)
	}
	if w.has(streamTasks, w.lane.subject()) {
		problem("the task's message is still in the queue")
	}
	if has := w.has(streamDead, deadSubject(w.lane.tenant, w.task)); has != (rec.Status == schemas.Dead) && !stopped {
		problem("the record is %s, and the task has a dead letter: %t", rec.Status, has)
	}
	return problems
}

// has reports whether a stream has messages on a subject.
func (w *world) has(stream, subject string) bool {
	s, err := w.js.Stream(context.Background(), stream)
	if err == nil {
		_, err = s.GetLastMsgForSubject(context.Background(), subject)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false
	}
	w.must(err)
	return true
}

// newModelFleet returns a fleet whose streams are in memory.
func newModelFleet(t testing.TB) *fleet {
	t.Helper()
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: "-", Log: noLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	f := &fleet{srv: srv, opts: Options{
		Server:      Server{InProcess: srv},
		Credentials: Credentials{User: srv.Fleet().User, Password: srv.Fleet().Password},
		Storage:     Storage{Revisions: 64}, AckWait: time.Hour, Log: noLog,
	}}
	f.Client = connect(t, f.opts)
	for _, s := range f.streams(1) {
		if !slices.Contains([]string{streamTasks, streamRecords, streamDead, streamDelayed, streamLogs}, s.Name) {
			continue
		}
		s.Storage, s.PersistMode = jetstream.MemoryStorage, jetstream.DefaultPersistMode
		if _, err := f.js.CreateStream(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// run walks one path and returns what is wrong at its end.
func (w *world) run(choose func([]action, *process) int) []string {
	if !w.begin() {
		return nil
	}
	w.play(choose)
	return w.finish()
}

// explain describes the path and what is wrong at its end.
func (w *world) explain(problems []string) string {
	return strings.Join(w.trail, "\n") + "\n\n" + strings.Join(problems, "\n")
}

// search walks all paths of a scenario with at most a number of switches from a process that could continue.
type search struct {
	switches int

	mu   sync.Mutex
	todo [][]int // the first choices of paths
	busy int     // paths that are being walked
	more *sync.Cond
	done int // paths
}

func newSearch(switches int) *search {
	s := &search{switches: switches, todo: [][]int{nil}}
	s.more = sync.NewCond(&s.mu)
	return s
}

// next returns the first choices of another path, or false if there is none.
func (s *search) next() ([]int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.todo) == 0 && s.busy > 0 {
		s.more.Wait()
	}
	if len(s.todo) == 0 {
		return nil, false
	}
	n := len(s.todo) - 1
	first := s.todo[n]
	s.todo = s.todo[:n]
	s.busy++
	s.done++
	return first, true
}

// walked adds the paths that branch off from a path after its first choices.
func (s *search) walked(p *walk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(p.first); i < len(p.taken); i++ {
		for other := p.taken[i] + 1; other < p.widths[i]; other++ {
			s.todo = append(s.todo, append(slices.Clone(p.taken[:i]), other))
		}
	}
	s.busy--
	s.more.Broadcast()
}

// stop ends the search.
func (s *search) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = nil
	s.busy--
	s.more.Broadcast()
}

// walk is one path of a search.
type walk struct {
	first  []int // choices; after them, the first action is always chosen
	left   int   // switches
	taken  []int
	widths []int // how many actions each choice was among
}

// choose implements the choice of world.play.
func (p *walk) choose(all []action, last *process) int {
	own := 0 // actions of last, which come first
	for _, a := range all {
		if last != nil && a.process == last {
			own++
		}
	}
	width := len(all)
	if own > 0 && p.left == 0 {
		width = own
	}
	n := 0
	if i := len(p.taken); i < len(p.first) {
		n = min(p.first[i], width-1)
	}
	p.taken, p.widths = append(p.taken, n), append(p.widths, width)
	if own > 0 && n >= own {
		p.left--
	}
	return n
}

// walkAll walks all paths of a scenario in parallel worlds. It returns the number of paths, and the first problems.
func walkAll(t *testing.T, f *fleet, sc scenario, switches int) (paths int, problems string) {
	t.Helper()
	s := newSearch(switches)
	found := make([]string, modelWorlds)
	var wg sync.WaitGroup
	for i := range modelWorlds {
		w := newWorld(t, f, fmt.Sprintf("%s-%d", sc.name, i), sc)
		wg.Go(func() {
			for first, ok := s.next(); ok; first, ok = s.next() {
				p := &walk{first: first, left: switches}
				if wrong := w.run(p.choose); len(wrong) > 0 {
					found[i] = fmt.Sprintf("%v:\n%s", p.taken, w.explain(wrong))
					s.stop()
					return
				}
				s.walked(p)
			}
		})
	}
	wg.Wait()
	return s.done, strings.Join(slices.DeleteFunc(found, func(s string) bool { return s == "" }), "\n\n")
}

const (
	modelWorlds = 8
	maxFetches  = 5 // by each worker, on one path
)

var modelScenarios = []scenario{
	{name: "exhausted", attempts: 1, redelivered: 1, ends: []handlerEnd{commits}},
	{name: "retried", attempts: 2, redelivered: 1, ends: []handlerEnd{commits, inDoubt}},
	{name: "cancelled", attempts: 2, redelivered: 1, cancels: 1, ends: []handlerEnd{commits}},
	{name: "redriven", attempts: 1, redelivered: 1, redrives: 1, ends: []handlerEnd{breaks}, large: true},
	{name: "delayed", attempts: 2, backoff: 600, ends: []handlerEnd{inDoubt}},
	{name: "delayed-twice", attempts: 3, backoff: 600, redelivered: 1, ends: []handlerEnd{breaks}, large: true},
	{
		name: "expired", attempts: 2, redelivered: 1, expires: 50 * time.Millisecond, ends: []handlerEnd{commits},
	},
}

// TestModel walks all paths of some scenarios.
func TestModel(t *testing.T) {
	f := newModelFleet(t)
	for _, s := range modelScenarios {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			switches := *modelSwitches
			if s.large {
				switches--
			}
			paths, problems := walkAll(t, f, s, switches)
			if problems != "" {
				t.Errorf("after %d paths, %s", paths, problems)
			}
			t.Logf("%d paths, %.1f s", paths, time.Since(began).Seconds())
		})
	}
}

// TestModelMutants checks that TestModel finds faults of the protocol.
func TestModelMutants(t *testing.T) {
	f := newModelFleet(t)
	for i, m := range []mutant{mutantNoFence, mutantOnlyLooks, mutantNoCondition} {
		t.Run(string(m), func(t *testing.T) {
			s := modelScenarios[0]
			if m == mutantNoCondition {
				s = modelScenarios[1]
			}
			s.name, s.mutant = fmt.Sprint("mutant-", i), m
			if paths, problems := walkAll(t, f, s, 1); problems == "" {
				t.Errorf("%d paths have no problem", paths)
			}
		})
	}
}

// anything is the scenario of random paths.
var anything = scenario{
	name: "anything", attempts: 2, redelivered: 3, cancels: 1, redrives: 1, resubmits: 1, records: 1,
	ends: []handlerEnd{commits, inDoubt, breaks, nothingDone},
}

// TestModelRandom walks random paths on which anything may happen. It prints the seed of a path with a problem.
func TestModelRandom(t *testing.T) {
	f := newModelFleet(t)
	var idle *world
	worlds := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := idle
		idle = nil
		if w == nil { // the first path, or the last one had a problem or did not reach its end
			worlds++
			w = newWorld(t, f, fmt.Sprint(anything.name, "-", worlds), anything)
		}
		w.attempts = rapid.IntRange(1, 3).Draw(rt, "attempts")
		w.backoff = rapid.SampledFrom([]float64{0.001, 600}).Draw(rt, "backoff")
		w.expires = rapid.SampledFrom([]time.Duration{0, 0, 0, 30 * time.Millisecond}).Draw(rt, "expires")
		steps := rapid.IntRange(1, 60).Draw(rt, "steps")
		problems := w.run(func(all []action, _ *process) int {
			if steps--; steps < 0 {
				return -1
			}
			return rapid.IntRange(0, len(all)-1).Draw(rt, "action")
		})
		if len(problems) > 0 {
			rt.Fatal(w.explain(problems))
		}
		idle = w
	})
}
