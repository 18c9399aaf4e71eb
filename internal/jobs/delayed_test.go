package jobs

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestDelayedTwice delays a task that has not run a second time, as a rate of tokens does. The second wait is over
// before the worker that stored it has acknowledged the message of the first one. The task is then still in the queue.
func TestDelayedTwice(t *testing.T) {
	f := newFleet(t)
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	rec := f.submit(t, "1", `{"code":"x"}`)
	rec.QueueSeq = 0 // it will be delayed
	at := time.Now().Add(time.Hour)
	wait := func() (r *run) {
		t.Helper()
		d := f.fetch(t, w.lanes)
		r, err := w.claim(t.Context(), d, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.rec.Run = 0 // as if the worker had not begun it
		if _, err := f.delay(t.Context(), r.lane, r.rec, d.msg.Header, d.msg.Data, at); err != nil {
			t.Fatal(err)
		}
		return r
	}
	promote := func() {
		t.Helper()
		if err := f.promoteNow(t.Context(), storedRecord{Record: rec}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r := wait()
		promote()
		_, _, err := f.change(t.Context(), "acme", rec.TaskID, func(s *storedRecord) (bool, error) {
			s.Status, s.Run, s.QueueSeq = rec.Status, 0, 0
			return true, nil
		})
		if err == nil {
			err = r.m.acknowledge(t.Context(), f.Client)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.release()
	}
	tasks, err := f.js.Stream(t.Context(), streamTasks)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := tasks.Info(t.Context()); err != nil || info.State.Msgs != 1 {
		t.Errorf("TASKS has %d messages, %v, want that of the task", info.State.Msgs, err)
	}
}

// TestCancelWhileARunEnds cancels a task after its run has ended and before it is delayed. It does not wait for the
// end of the delay.
func TestCancelWhileARunEnds(t *testing.T) {
	f := newFleet(t)
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	rec := f.submit(t, "1", `{"code":"x"}`)
	r, err := w.claim(t.Context(), f.fetch(t, w.lanes), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	if _, err := f.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	if err := r.delayUntil(t.Context(), time.Now().Add(time.Hour), toRetryWait(outcomeError, "x")); err != nil {
		t.Fatal(err)
	}
	delayed, err := f.js.Stream(t.Context(), streamDelayed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = delayed.GetLastMsgForSubject(t.Context(), delayedSubject("acme", rec.TaskID, 1))
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("message in DELAYED: %v, want none: the task is due", err)
	}
	f.fetch(t, w.lanes)
}
