package jobs

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// feed brings lanes with tasks to free slots. Three sources tell it of tasks: bells (the server
// republishes every stored task on wake.>; quick, but may be lost), the number of entries behind each
// one delivered, and a scan of the stream now and then, which also finds what lost workers left.
type feed struct {
	w     *Worker
	subs  []*nats.Subscription
	bells chan lane
	scans chan map[lane]int
	moves chan move // from the slots; never dropped
}

// move is news from a slot.
type move struct {
	lane
	kind    moveKind
	pending int
}

type moveKind int

const (
	took  moveKind = iota // an entry was delivered, the slot runs it
	ended                 // the slot has run an entry and is free
	empty                 // the slot found nothing and is free
)

func newFeed(w *Worker) (*feed, error) {
	f := &feed{w: w, bells: make(chan lane, 4096), scans: make(chan map[lane]int), moves: make(chan move)}
	for _, pool := range w.opts.Pools {
		sub, err := w.c.nc.Subscribe("wake."+pool+".>", func(m *nats.Msg) { f.ring(m.Subject) })
		if err != nil {
			f.close()
			return nil, err
		}
		f.subs = append(f.subs, sub)
	}
	sub, err := w.c.nc.Subscribe("cancel.>", func(m *nats.Msg) { w.recheck(m.Subject[len("cancel."):]) })
	if err != nil {
		f.close()
		return nil, err
	}
	f.subs = append(f.subs, sub)
	return f, nil
}

func (f *feed) close() {
	for _, sub := range f.subs {
		if err := sub.Unsubscribe(); err != nil {
			f.w.log.DebugContext(context.Background(), "unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
}

// ring hands on a bell. One too many is dropped: the scan finds its task.
func (f *feed) ring(subject string) {
	if l, ok := laneOf(subject); ok && f.w.serves(l) {
		select {
		case f.bells <- l:
		default:
		}
	}
}

// dispatch pairs slots with lanes until take ends, then waits for the slots.
func (f *feed) dispatch(take, work context.Context) {
	var slots sync.WaitGroup
	defer slots.Wait()
	ring := newRing()
	free, stopping := f.w.opts.Slots, take.Done()
	for take.Err() == nil || free < f.w.opts.Slots {
		var again <-chan time.Time
		for free > 0 && take.Err() == nil {
			l, ok, wait := ring.next(time.Now(), f.w.warmTenants())
			if !ok {
				if wait > 0 {
					again = time.After(wait)
				}
				break
			}
			free--
			slots.Go(func() { f.serve(take, work, l) })
		}
		select {
		case l := <-f.bells:
			ring.bell(l)
		case <-again:
		case counts := <-f.scans:
			for l, n := range counts {
				ring.seen(l, n)
			}
		case m := <-f.moves:
			switch m.kind {
			case took:
				ring.took(m.lane, m.pending)
				continue
			case ended:
				ring.ended(m.lane, time.Now())
			case empty:
				ring.empty(m.lane)
			}
			free++
		case <-stopping:
			stopping = nil
			f.w.setDraining()
		}
		f.w.setBusy(f.w.opts.Slots - free)
	}
}

// serve uses one slot for one entry of a lane, if there is one.
func (f *feed) serve(take, work context.Context, l lane) {
	d, err := f.w.lanes.fetch(take, l)
	if err != nil && take.Err() == nil {
		f.w.log.WarnContext(take, "fetch", "subject", l.subject(), "error", err)
	}
	if d == nil {
		f.moves <- move{lane: l, kind: empty}
		return
	}
	f.moves <- move{lane: l, kind: took, pending: d.pending}
	f.w.handle(work, d, f.later)
	f.moves <- move{lane: l, kind: ended}
}

// later rings for a lane after a delay: no bell sounds for an entry that comes back.
func (f *feed) later(l lane, delay time.Duration) {
	time.AfterFunc(delay+time.Millisecond, func() { f.ring(l.subject()) })
}

// scan counts what the stream holds: at once, every scanEvery, and after each reconnect.
func (f *feed) scan(ctx context.Context) {
	every := time.NewTicker(min(max(f.w.opts.AckWait/6, 100*time.Millisecond), 2*time.Second))
	defer every.Stop()
	connected := f.w.c.nc.StatusChanged(nats.CONNECTED)
	defer f.w.c.nc.RemoveStatusListener(connected)
	for {
		subjects, err := f.w.c.taskSubjects(ctx)
		if err != nil && ctx.Err() == nil {
			f.w.log.WarnContext(ctx, "scan for tasks", "error", err)
		}
		counts, strays := byLane(subjects)
		f.w.sweep(ctx, strays)
		maps.DeleteFunc(counts, func(l lane, _ int) bool { return !f.w.serves(l) })
		if len(counts) > 0 {
			select {
			case f.scans <- counts:
			case <-ctx.Done():
			}
		}
		select {
		case <-every.C:
		case <-connected:
		case <-ctx.Done():
			return
		}
	}
}
