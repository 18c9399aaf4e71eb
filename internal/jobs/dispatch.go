package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/schemas"
)

// Run claims and runs tasks until accept ends, then waits for the running ones. When work ends too (after a grace
// time), handlers are cancelled with ErrDraining and their tasks are requeued, within two FinishTimes. A message that
// could not be requeued by then is delivered again after the ack wait. Run returns after all handlers have
// returned.
func (w *Worker) Run(accept, work context.Context) error {
	if w.opts.Handler == nil {
		return errors.New("start worker: WorkerOptions.Handler is required")
	}
	for _, pool := range w.opts.Pools {
		if err := schemas.CheckPool(pool); err != nil {
			return err
		}
	}
	d, err := newDispatcher(w)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.opts.Name, err)
	}
	defer d.close()
	stopApprovals, err := w.c.serveApprovals()
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.opts.Name, err)
	}
	defer stopApprovals()
	late, stop := clock.After(work, 2*FinishTime) // ends two FinishTimes after work, when the last requests give up
	defer stop()
	present, cancel := context.WithCancel(context.WithoutCancel(accept))
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel() // after the last task has finished
	background.Go(func() { w.publishPresence(present, late) })
	read := make(chan struct{})
	background.Go(func() {
		once := sync.OnceFunc(func() { close(read) })
		w.c.FollowControls(accept, func() { once(); w.obeyDrain(accept); w.lanes.forgetAll(); d.askForScan() })
	})
	select { // the first task must not start before the pauses are known
	case <-read:
	case <-accept.Done():
	}
	background.Go(func() { d.scan(accept) })
	background.Go(func() { w.keepTally(present, late) })
	background.Go(func() { w.promote(accept, late) })
	background.Go(func() { w.c.RecordTasks(accept) })
	d.dispatch(accept, work, late)
	w.lanes.close()
	return nil
}

// maxHold is how long a worker starts no tasks or calls of a tenant whose rate was used up, before it tries again.
const maxHold = 2 * time.Second

// dispatcher assigns lanes with messages to free slots. It learns of messages from three sources: wake-ups,
// which the server sends for every stored task (fast, but they may be lost); the pending count of each delivered
// message; and scans of TASKS, which also find the tasks of lost workers.
type dispatcher struct {
	w      *Worker
	subs   []*nats.Subscription
	wakes  chan lane
	scans  chan map[lane]int
	rescan chan struct{}  // asks for a scan
	events chan slotEvent // never dropped

	heldUntil map[string]time.Time // by tenant; owned by dispatch
	controls  *controls            // for which heldUntil is valid; owned by dispatch
}

// slotEvent reports a slot's progress to the dispatcher.
type slotEvent struct {
	lane
	kind      slotEventKind
	pending   int
	took      time.Duration // how long the slot processed its message, or waited for one
	uncounted bool          // a count against the tenant's rate was undone, so held tasks may start
	until     time.Time     // with slotHeld: when the tenant may start tasks again
}

type slotEventKind int

const (
	slotStarted slotEventKind = iota // the slot processes a message
	slotDone                         // the slot has processed its message and is free
	slotEmpty                        // the slot got no message and is free
	slotHeld                         // the slot is free, because the tenant's rate is used up
)

func newDispatcher(w *Worker) (*dispatcher, error) {
	d := &dispatcher{
		w: w, wakes: make(chan lane, 4096), scans: make(chan map[lane]int), rescan: make(chan struct{}, 1),
		events: make(chan slotEvent), heldUntil: map[string]time.Time{},
	}
	for _, pool := range w.opts.Pools {
		if err := d.subscribe(wakePrefix+pool+".>", func(m *nats.Msg) { d.wake(m.Subject) }); err != nil {
			return nil, err
		}
	}
	return d, d.subscribe("cancel.>", func(m *nats.Msg) { w.leases.recheck(m.Subject[len("cancel."):]) })
}

// subscribe adds a subscription. If that fails, it ends all others.
func (d *dispatcher) subscribe(subject string, fn nats.MsgHandler) error {
	sub, err := d.w.c.nc.Subscribe(subject, fn)
	if err != nil {
		d.close()
		return err
	}
	d.subs = append(d.subs, sub)
	return nil
}

func (d *dispatcher) close() {
	for _, sub := range d.subs {
		unsubscribe(sub)
	}
}

// wake passes a wake-up on, or drops it if too many are queued: the next scan finds the task.
func (d *dispatcher) wake(subject string) {
	if l, ok := laneOf(subject); ok && d.w.accepts(l) {
		select {
		case d.wakes <- l:
		default:
		}
	}
}

// dispatch assigns lanes to slots until accept ends, then waits for the slots.
func (d *dispatcher) dispatch(accept, work, late context.Context) {
	var slots sync.WaitGroup
	defer slots.Wait()
	s := newScheduler()
	for _, ts := range s.turns {
		ts.weight = d.w.weight
	}
	free, stopping := d.w.opts.Slots, accept.Done()
	for accept.Err() == nil || free < d.w.opts.Slots {
		var retry <-chan time.Time
		s.held = d.heldNow()
		for free > 0 && accept.Err() == nil {
			l, ok, wait := s.next(time.Now(), d.w.opts.Tenants.Warm())
			if !ok {
				if wait > 0 {
					retry = time.After(wait)
				}
				break
			}
			free--
			slots.Go(func() { d.useSlot(accept, work, late, l) })
		}
		select {
		case l := <-d.wakes:
			s.wake(l)
		case <-retry:
		case counts := <-d.scans:
			for l, n := range counts {
				s.counted(l, n)
			}
		case e := <-d.events:
			switch e.kind {
			case slotStarted:
				s.started(e.lane, e.pending)
				continue
			case slotDone:
				s.done(e.lane, time.Now(), e.took)
			case slotEmpty:
				s.empty(e.lane, e.took)
			case slotHeld:
				s.empty(e.lane, e.took)
				d.holdUntil(e.lane, e.until)
			}
			if _, held := d.heldUntil[e.tenant]; held && e.uncounted {
				delete(d.heldUntil, e.tenant)
				// After slotEmpty, a scan would count the messages of running tasks again, and the lane would be
				// fetched in vain.
				if e.kind == slotDone {
					d.askForScan()
				}
			}
			free++
		case <-stopping:
			stopping = nil
			d.w.draining.Store(true)
		}
		d.w.busy.Store(int64(d.w.opts.Slots - free))
	}
}

// paused reports whether a lane is paused.
func (d *dispatcher) paused(l lane) bool {
	_, paused := d.w.c.controls.Load().pauseOf(l)
	return paused
}

// heldNow returns a function that reports whether a lane is held, so that none of its tasks may start now, or nil if no
// lane is held.
func (d *dispatcher) heldNow() func(lane) bool {
	set := d.w.c.controls.Load()
	if set != d.controls { // the rates may have changed
		d.controls = set
		clear(d.heldUntil)
	}
	if len(d.heldUntil) == 0 && (set == nil || len(set.pauses) == 0) {
		return nil
	}
	now := time.Now()
	maps.DeleteFunc(d.heldUntil, func(_ string, until time.Time) bool { return !now.Before(until) })
	return func(l lane) bool {
		_, paused := set.pauseOf(l)
		_, held := d.heldUntil[l.tenant]
		return paused || held
	}
}

// holdUntil prevents tasks of the lane's tenant from starting until a time, but for maxHold at most: another worker may
// have counted a start that does not take place.
func (d *dispatcher) holdUntil(l lane, until time.Time) {
	if latest := time.Now().Add(maxHold); until.After(latest) {
		until = latest
	}
	d.heldUntil[l.tenant] = until
	d.wakeLater(l, time.Until(until))
}

// useSlot fetches one message of a lane and processes it, unless the tenant's rate of tasks is used up. A message with
// which no run begins does not count against the rate. useSlot reports to the dispatcher what the slot does.
func (d *dispatcher) useSlot(accept, work, late context.Context, l lane) {
	began := time.Now()
	rate, counter := d.w.limitsOf(l.tenant).TaskRate, ""
	until, err := d.w.c.usedUpUntil(accept, l.tenant, rateTasks, rate) // cheaper than to count and undo it
	if err == nil && until.IsZero() {
		counter, until, err = d.w.c.countRate(accept, l.tenant, rateTasks, rate)
	}
	if err != nil && accept.Err() == nil {
		d.w.log.WarnContext(accept, "rate of tasks not counted", "tenant", l.tenant, "error", err)
	}
	if !until.IsZero() {
		d.events <- slotEvent{lane: l, kind: slotHeld, until: until}
		return
	}
	m, err := d.w.lanes.fetch(accept, late, l)
	if err != nil && accept.Err() == nil {
		d.w.log.WarnContext(accept, "task not fetched", "subject", l.subject(), "error", err)
	}
	if m != nil && d.paused(l) { // it was paused while the server waited for a message
		d.w.logError(accept, "message not requeued", m.requeue(d.w.c, 0))
		m = nil
	}
	if m == nil {
		d.events <- slotEvent{
			lane: l, kind: slotEmpty, took: time.Since(began), uncounted: d.uncount(accept, late, counter),
		}
		return
	}
	began = time.Now()
	d.events <- slotEvent{lane: l, kind: slotStarted, pending: m.pending}
	ran := d.w.process(work, late, m, d.wakeLater)
	d.events <- slotEvent{
		lane: l, kind: slotDone, took: time.Since(began), uncounted: !ran && d.uncount(accept, late, counter),
	}
}

// uncount undoes a count against a tenant's rate of tasks, also after accept has ended, and reports whether there was
// one.
func (d *dispatcher) uncount(accept, late context.Context, counter string) bool {
	ctx, cancel := detached(accept, late, requestTimeout)
	defer cancel()
	d.w.logError(ctx, "rate of tasks not corrected", d.w.c.uncount(ctx, counter))
	return counter != ""
}

// wakeLater wakes a lane after a delay: the server sends no wake-up for a requeued message.
func (d *dispatcher) wakeLater(l lane, delay time.Duration) {
	time.AfterFunc(delay+time.Millisecond, func() { d.wake(l.subject()) })
}

// askForScan makes scan count the messages soon: tasks that were held may start now.
func (d *dispatcher) askForScan() {
	select {
	case d.rescan <- struct{}{}:
	default:
	}
}

// scan counts the messages in TASKS for the dispatcher, and sweeps those on invalid subjects: at once, at intervals,
// after each reconnect, and when it is asked to.
func (d *dispatcher) scan(ctx context.Context) {
	every := time.NewTicker(min(max(d.w.opts.AckWait/6, 100*time.Millisecond), 2*time.Second))
	defer every.Stop()
	connected := d.w.c.nc.StatusChanged(nats.CONNECTED)
	defer d.w.c.nc.RemoveStatusListener(connected)
	out := outage{log: d.w.log, failed: "scan for tasks failed", again: "scan for tasks succeeded again"}
	for {
		subjects, err := d.w.c.taskSubjects(ctx)
		out.report(ctx, err)
		counts, invalid := byLane(subjects)
		maps.DeleteFunc(counts, func(l lane, _ int) bool { return !d.w.accepts(l) })
		if len(counts) > 0 {
			select {
			case d.scans <- counts:
			case <-ctx.Done():
			}
		}
		d.w.sweep(ctx, invalid)
		select {
		case <-every.C:
		case <-connected:
		case <-d.rescan:
		case <-ctx.Done():
			return
		}
	}
}
