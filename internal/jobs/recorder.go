package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/internal/clock"
)

// A producer may publish a task on TASKS without Submit. RecordTasks creates the record of such a task while it waits,
// so that its status, the list of tasks and Cancel know it. All processes that call RecordTasks take turns. A cursor
// in a bucket says up to which sequence of TASKS every task has its record.

const (
	cursorRecorded = "recorded"
	recordGrace    = 250 * time.Millisecond // Submit or a claim usually creates the record in this time
	turnTime       = 400 * time.Millisecond // a turn without progress passes to another process after this time
	turnPoll       = 100 * time.Millisecond
	recordsAtOnce  = 64
)

// recorder creates missing records for one process.
type recorder struct {
	c      *Client
	kv     jetstream.KeyValue
	newest atomic.Uint64 // the highest sequence of TASKS that this process knows
	woken  chan struct{}

	out *outage

	rev   uint64    // revision of the cursor when it was last read
	since time.Time // when rev was read first
}

// cursor is the value of a key in the bucket CURSORS.
type cursor struct {
	Seq  uint64 `json:"seq"`  // the tasks of all messages up to this sequence have records
	Busy bool   `json:"busy"` // a process has its turn
}

// RecordTasks creates the records of tasks that were published without Submit, within a second, until ctx ends. Every
// worker and every ingest calls it.
func (c *Client) RecordTasks(ctx context.Context) {
	out := &outage{
		log:    c.opts.Log,
		failed: "creation of missing records failed", again: "creation of missing records succeeded again",
	}
	for ctx.Err() == nil {
		r := &recorder{c: c, woken: make(chan struct{}, 1), out: out}
		if err := r.run(ctx); err != nil {
			out.report(ctx, err)
			_ = clock.Sleep(ctx, time.Second) // the loop ends with ctx
		}
	}
}

// run creates records until ctx ends or an error occurs. It also returns when the connection was lost and restored.
func (r *recorder) run(ctx context.Context) (err error) {
	if r.kv, err = r.c.js.KeyValue(ctx, bucketCursors); err != nil {
		return err
	}
	sub, err := r.c.nc.Subscribe(wakePrefix+">", func(m *nats.Msg) {
		onlyServerHeaders(m.Header)
		if seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err == nil {
			r.raise(seq)
		}
	})
	if err != nil {
		return err
	}
	defer unsubscribe(sub)
	connected := r.c.nc.StatusChanged(nats.CONNECTED)
	defer r.c.nc.RemoveStatusListener(connected)
	for err = r.catchUp(ctx); err == nil; {
		select {
		case <-r.woken:
			if err = r.recordUpTo(ctx); err == nil {
				r.out.report(ctx, nil)
			}
		case <-connected: // wake-ups may have been lost, or the stream was created again
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return err
}

// raise raises newest to seq, and wakes run if that is an increase.
func (r *recorder) raise(seq uint64) {
	for {
		old := r.newest.Load()
		if seq <= old {
			return
		}
		if r.newest.CompareAndSwap(old, seq) {
			break
		}
	}
	r.wake()
}

func (r *recorder) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// catchUp raises newest to the last message in TASKS. If the stream was created again, it resets the cursor.
func (r *recorder) catchUp(ctx context.Context) error {
	stream, err := r.c.js.Stream(ctx, streamTasks)
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	at, rev, err := r.read(ctx)
	if err == nil && at.Seq > last { // the stream was created again
		_, _, err = r.write(ctx, cursor{}, rev)
	}
	r.raise(last)
	r.wake() // even if the stream is empty, so that the end of an outage is reported
	return err
}

// recordUpTo waits until every task up to newest has a record. It creates the records if it gets the turn.
func (r *recorder) recordUpTo(ctx context.Context) error {
	target := r.newest.Load()
	if err := clock.Sleep(ctx, recordGrace); err != nil {
		return err
	}
	for {
		if done, err := r.turn(ctx, target); done || err != nil {
			return err
		}
		if err := clock.Sleep(ctx, turnPoll); err != nil {
			return err
		}
	}
}

// turn takes the turn, unless another process has it, and creates records. It reports whether all tasks up to target
// have records.
func (r *recorder) turn(ctx context.Context, target uint64) (done bool, err error) {
	at, rev, err := r.read(ctx)
	if err != nil || at.Seq >= target {
		return err == nil, err
	}
	if rev != r.rev {
		r.rev, r.since = rev, time.Now()
	}
	if at.Busy && time.Since(r.since) < turnTime {
		return false, nil
	}
	for at.Seq < target {
		at.Busy = true
		var mine bool
		if rev, mine, err = r.write(ctx, at, rev); err != nil || !mine {
			return false, err
		}
		if at.Seq, err = r.record(ctx, at.Seq+1, target); err != nil {
			return false, err
		}
	}
	at.Busy = false
	_, _, err = r.write(ctx, at, rev)
	return err == nil, err
}

func (r *recorder) read(ctx context.Context) (at cursor, rev uint64, err error) {
	e, err := r.kv.Get(ctx, cursorRecorded)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return cursor{}, 0, nil
	}
	if err != nil {
		return cursor{}, 0, fmt.Errorf("read cursor: %w", err)
	}
	return at, e.Revision(), json.Unmarshal(e.Value(), &at)
}

// write replaces revision rev of the cursor. If another process has changed it, write reports false.
func (r *recorder) write(ctx context.Context, at cursor, rev uint64) (next uint64, ok bool, err error) {
	data, err := json.Marshal(at)
	if err != nil {
		return 0, false, err
	}
	next, err = swapKey(ctx, r.kv, cursorRecorded, data, rev)
	if errors.Is(err, errStale) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("write cursor: %w", err)
	}
	return next, true, nil
}

// record creates the records of a batch of messages, from sequence first up to target. It returns the sequence up to
// which all tasks have records.
func (r *recorder) record(ctx context.Context, first, target uint64) (uint64, error) {
	creating, creatingCtx := errgroup.WithContext(ctx)
	creating.SetLimit(recordsAtOnce)
	next, more, err := r.c.batch(ctx, streamTasks, "tasks.>", first, func(m *nats.Msg) error {
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err == nil && seq <= target {
			creating.Go(func() error { return r.c.createRecord(creatingCtx, m, seq) })
		}
		return err
	})
	if err := errors.Join(creating.Wait(), err); err != nil {
		return 0, fmt.Errorf("create records: %w", err)
	}
	if !more {
		return target, nil
	}
	return min(next-1, target), nil
}

// createRecord creates the record of a message's task if it does not exist. It leaves messages without a valid event or
// subject to the workers, which dead-letter them.
func (c *Client) createRecord(ctx context.Context, m *nats.Msg, seq uint64) error {
	l, ok := laneOf(m.Header.Get(jetstream.SubjectHeader))
	stored, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if !ok || err != nil {
		return err
	}
	ev, err := decodeNATS(m.Header, m.Data)
	if err != nil {
		return nil //nolint:nilerr // a worker refuses the message
	}
	s := submission{lane: l, event: ev, data: ev.Data()}
	if _, err := c.load(ctx, l.tenant, s.taskID()); !errors.Is(err, ErrUnknownTask) {
		return err // the usual case: Submit has created the record
	}
	if _, err := c.checkMessage(ctx, &s, c.opts.Policy); err != nil {
		return err
	}
	rec := s.record(extract(ctx, m.Header, ev), seq, stored)
	err = c.swap(ctx, &rec)
	if isUnstorable(err) { // it must not hold up the tasks behind it
		c.opts.Log.ErrorContext(ctx, "record of a task not created", "task_id", s.id, "tenant", l.tenant, "error", err)
		return nil
	}
	if errors.Is(err, errStale) { // the task has a record
		return nil
	}
	return err
}
