package jobs

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/schemas"
)

// TestSubmissionOfAMovingTask reads the submission of a task with the record of one moment and the message where it is
// at a later one: in the queue, delayed, due again but not claimed, and ended.
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

	kept := &nats.Msg{
		Subject: submittedSubject("acme", rec.TaskID), Header: keptHeaders(m.Header), Data: m.Data,
	}
	if _, err := f.js.PublishMsg(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	change("ended", func(r *storedRecord) { r.Status = schemas.Succeeded })
	tasks, err := f.js.Stream(t.Context(), streamTasks)
	if err == nil {
		err = tasks.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	check("ended")
}

// TestSubmissionIsNotValid checks that the error of a submission with both data and a reference says so.
func TestSubmissionIsNotValid(t *testing.T) {
	f := newFleet(t)
	f.record(t)
	ev := taskEvent("1", `{"code":"x"}`)
	h, data, err := encodeNATS(ev)
	if err != nil {
		t.Fatal(err)
	}
	h.Set("ce-dataref", objectRef("acme/x"))
	f.publish(t, "tasks.default.normal.acme", h, string(data))
	id := TaskID("acme", ev.Source(), ev.ID())
	f.awaitRecord(t, id)
	_, _, err = f.Submitted(t.Context(), "acme", id)
	want := "the submission of task " + id + " is not valid: the event has both data and a reference to data"
	if e, ok := errors.AsType[*NotRetryableError](err); !ok || e.Reason != want {
		t.Errorf("Submitted = %v, want %q", err, want)
	}
}
