package jobs

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestSubmissionOfAMovingTask reads the submission of a task with the record of one moment and the message where it is
// at a later one: in the queue, delayed, due again but not claimed, and cancelled.
func TestSubmissionOfAMovingTask(t *testing.T) {
	f := newFleet(t)
	const data = `{"code":"moving"}`
	rec := f.submit(t, "1", data)
	f.submit(t, "2", `{"code":"other"}`)
	queued, err := f.find(t.Context(), "acme", rec.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]storedRecord{"queued": queued}
	check := func(state string) {
		t.Helper()
		for when, old := range read {
			m, err := f.submittedMessage(t.Context(), old)
			if err != nil || string(m.Data) != data {
				t.Errorf("with the record of when it was %s, the message of a task that is %s is %v, %v; want its own",
					when, state, m, err)
			}
		}
	}
	check("queued")
	change := func(state string, fn func(*storedRecord)) storedRecord {
		t.Helper()
		_, after, err := f.change(t.Context(), "acme", rec.TaskID, func(r *storedRecord) (bool, error) {
			fn(r)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		read[state] = after
		return after
	}

	m, remove, err := f.queuedMessage(t.Context(), queued)
	if err != nil {
		t.Fatal(err)
	}
	l := lane{pool: queued.Pool, priority: queued.Priority, tenant: queued.Tenant}
	at := time.Now().Add(time.Hour)
	if _, err := f.delay(t.Context(), l, queued, m.Header, m.Data, at); err != nil {
		t.Fatal(err)
	}
	delayed := change("delayed", func(r *storedRecord) { r.QueueSeq = 0 })
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	check("delayed")

	if err := f.promoteNow(t.Context(), delayed); err != nil {
		t.Fatal(err)
	}
	check("due")

	if _, err := f.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	if read["cancelled"], err = f.find(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	check("cancelled")
	f.work(t, WorkerOptions{Handler: succeed})
	eventually(t, "events of both tasks", func() error {
		tasks, kept := streamState(t, f, streamTasks).Msgs, streamState(t, f, streamSubmitted).Msgs
		if tasks != 0 || kept != 2 {
			return fmt.Errorf("the queue has %d messages, and %d events are kept, want 0 and 2", tasks, kept)
		}
		return nil
	})
	check("cancelled and removed from the queue")
}

// TestSubmissionIsNotValid checks that the error of a submission that cannot be submitted again says why.
func TestSubmissionIsNotValid(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: succeed})
	const both, noObject = "the event has both data and a reference to data", "its data is not a JSON object"
	for _, c := range []struct{ data, ref, want string }{
		{`{"code":"x"}`, objectRef("acme/x"), both}, {`[1]`, "", noObject}, {`null`, "", noObject}, {`no JSON`, "", noObject},
	} {
		ev := taskEvent(c.data, `{}`)
		h, _, err := encodeNATS(ev)
		if err != nil {
			t.Fatal(err)
		}
		if c.ref != "" {
			h.Set("ce-dataref", c.ref)
		}
		f.publish(t, "tasks.default.normal.acme", h, c.data)
		id := TaskID("acme", ev.Source(), ev.ID())
		f.awaitRecord(t, id)
		_, _, err = f.Submitted(t.Context(), "acme", id)
		want := "the submission of task " + id + " is not valid: " + c.want
		if e, ok := errors.AsType[*NotRetryableError](err); !ok || e.Reason != want {
			t.Errorf("Submitted of %s = %v, want %q", c.data, err, want)
		}
	}
}
