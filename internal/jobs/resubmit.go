package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// The event of a task that has ended is kept for a while, so that the task can be submitted again.

const maxSubmittedBytes = 512 << 20 // bytes of all tenants' events; the oldest events are removed

func submittedSubject(tenant, id string) string { return "submitted." + tenant + "." + id }

// NotRetryableError says why a task cannot be retried, or submitted again.
type NotRetryableError struct{ Reason, Hint string }

func (e *NotRetryableError) Error() string { return e.Reason }

// keepEvent stores the event of a task that ends. It does not wait for the queue: if the event is lost, the task
// merely cannot be submitted again.
func (c *Client) keepEvent(ctx context.Context, tenant, id string, m *nats.Msg) {
	h := keptHeaders(m.Header)
	h.Del(runHeader)
	if err := c.nc.PublishMsg(&nats.Msg{Subject: submittedSubject(tenant, id), Header: h, Data: m.Data}); err != nil {
		c.opts.Log.DebugContext(ctx, "event of an ended task not kept", "task_id", id, "error", err)
	}
}

// Submitted returns the record of a task and the event that submitted it, with its data. The error is ErrUnknownTask,
// or a *NotRetryableError if the event or its data is no longer kept.
func (c *Client) Submitted(ctx context.Context, tenant, id string) (schemas.Record, event.Event, error) {
	rec, err := c.find(ctx, tenant, id)
	if err != nil {
		return schemas.Record{}, event.Event{}, err
	}
	s, err := c.submittedEvent(ctx, rec)
	if err != nil {
		return rec.Record, event.Event{}, err
	}
	ev := s.event.Clone()
	ev.SetExtension("dataref", nil)
	ev.DataEncoded = s.data
	return rec.Record, ev, nil
}

// submittedEvent returns the event that submitted a task, and its data. The error is a *NotRetryableError if one of
// them is no longer kept, or if the event is not valid.
func (c *Client) submittedEvent(ctx context.Context, rec storedRecord) (s submission, err error) {
	gone := &NotRetryableError{
		Reason: "the submission of task " + rec.TaskID + " is no longer kept", Hint: "submit the task again",
	}
	m, err := c.submittedMessage(ctx, rec)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, gone
	}
	if err != nil {
		return s, fmt.Errorf("read the submission of task %s: %w", rec.TaskID, err)
	}
	if m.Header.Get(deadCut) != "" {
		return s, gone
	}
	ev, err := decodeNATS(m.Header, m.Data)
	if err != nil {
		return s, gone
	}
	s = submission{
		lane: lane{pool: rec.Pool, priority: rec.Priority, tenant: rec.Tenant},
		id:   rec.TaskID, event: ev, data: ev.Data(),
	}
	err = c.fetchData(ctx, &s)
	var fields map[string]json.RawMessage
	if err == nil && (json.Unmarshal(s.data, &fields) != nil || fields == nil) {
		err = refuse(errcode.BadEvent, "", "its data is not a JSON object")
	}
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case !ok:
		return s, err
	case refused.Code == errcode.BadData:
		gone.Reason += fmt.Sprintf(": its data is above %d KiB", inlineMax>>10)
	default:
		gone.Reason = "the submission of task " + rec.TaskID + " is not valid: " + refused.Message
	}
	return s, gone
}

// submittedMessage returns the message of a task: from the queue while the task has not ended, later from the stream of
// submitted events, or else from the dead-letter queue. The message may have moved since the record was read; then
// submittedMessage reads the record again.
func (c *Client) submittedMessage(ctx context.Context, rec storedRecord) (m *jetstream.RawStreamMsg, err error) {
	for range swapTries {
		if rec.Status.Terminal() {
			m, err = c.endedMessage(ctx, rec)
			// The queue may still have the message of a task that was cancelled before it ran.
			if rec.Run > 0 || rec.Status != schemas.Cancelled || !errors.Is(err, jetstream.ErrMsgNotFound) {
				return m, err
			}
		}
		if m, _, err = c.queuedMessage(ctx, rec); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return m, err
		}
		fresh, findErr := c.loadLeader(ctx, rec.Tenant, rec.TaskID)
		switch {
		case findErr != nil:
			return nil, findErr
		case fresh.rev == rec.rev && rec.QueueSeq == 0:
			return c.dueMessage(ctx, rec)
		case fresh.rev == rec.rev:
			return nil, err
		}
		rec = fresh
	}
	return m, err
}

// endedMessage returns the message of a task that has ended.
func (c *Client) endedMessage(ctx context.Context, rec storedRecord) (*jetstream.RawStreamMsg, error) {
	stream, err := c.js.Stream(ctx, streamSubmitted)
	if err != nil {
		return nil, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, submittedSubject(rec.Tenant, rec.TaskID))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		m, _, err = c.letter(ctx, rec.Tenant, rec.TaskID)
	}
	return m, err
}

// dueMessage returns the message of a task that has been moved from DELAYED to TASKS, or redriven, and that no worker
// has claimed since: the record does not name it. The error is jetstream.ErrMsgNotFound if TASKS does not hold it.
func (c *Client) dueMessage(ctx context.Context, rec storedRecord) (*jetstream.RawStreamMsg, error) {
	since := rec.SubmittedAt
	if n := len(rec.Attempts); n > 0 {
		since = rec.Attempts[n-1].StartedAt
	}
	since = since.Add(-time.Minute) // clocks differ
	l := lane{pool: rec.Pool, priority: rec.Priority, tenant: rec.Tenant}
	var found *jetstream.RawStreamMsg
	err := c.readSince(ctx, streamTasks, l.subject(), since, func(m *nats.Msg) error {
		ev, invalid := decodeNATS(m.Header, m.Data)
		if s := (submission{lane: l, event: ev}); invalid == nil && s.taskID() == rec.TaskID {
			found = &jetstream.RawStreamMsg{Header: m.Header, Data: m.Data}
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return found, nil
	case err == nil:
		err = jetstream.ErrMsgNotFound
	}
	return nil, err
}

// Retry runs a task again after it has ended without success, and returns its record. A dead-lettered task is redriven,
// under its own id. Any other has a final result, which its caller, triggers and webhooks may have acted on; so it is
// submitted again as a new task, and repeated calls return the same new task. The error is ErrUnknownTask, a
// *NotRedrivableError, a *NotRetryableError, or one of Submit.
func (c *Client) Retry(ctx context.Context, tenant, id string) (schemas.Record, error) {
	rec, err := c.find(ctx, tenant, id)
	if err != nil {
		return schemas.Record{}, err
	}
	switch {
	case !rec.Status.Terminal():
		return schemas.Record{}, &NotRetryableError{
			Reason: fmt.Sprintf("task %s is %s: only a task that has ended can be retried", id, rec.Status),
			Hint:   "wait for its end, or cancel it first",
		}
	case rec.Status == schemas.Succeeded:
		return schemas.Record{}, &NotRetryableError{
			Reason: "task " + id + " has succeeded: there is nothing to retry",
			Hint:   "submit it again as a new task: GET /v1/tasks/{id}/submission returns its submission",
		}
	}
	dead, err := c.isDeadLettered(ctx, rec)
	if err != nil {
		return schemas.Record{}, fmt.Errorf("retry task %s: %w", id, err)
	}
	if dead {
		return c.Redrive(ctx, tenant, id)
	}
	s, err := c.submittedEvent(ctx, rec)
	if err != nil {
		return schemas.Record{}, err
	}
	ev := s.event.Clone()
	ev.DataEncoded = s.data
	for _, name := range []string{"dataref", "expirytime", "traceparent", "tracestate"} {
		ev.SetExtension(name, nil)
	}
	ev.SetExtension("idempotencykey", "retry-"+id)
	ev.SetTime(time.Now())
	return c.Submit(ctx, tenant, ev)
}

// isDeadLettered reports whether a task that has ended is dead or has a dead letter. A blocked task has one if it was
// refused before it ran, and none if a run has blocked it.
func (c *Client) isDeadLettered(ctx context.Context, rec storedRecord) (bool, error) {
	if rec.Status != schemas.Blocked {
		return rec.Status == schemas.Dead, nil
	}
	_, _, err := c.letter(ctx, rec.Tenant, rec.TaskID)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// DeadLetter returns a task's dead letter, with the task's record if it is still kept. If the task has none, the error
// is a *NotRedrivableError, or ErrUnknownTask if there is no record either.
func (c *Client) DeadLetter(ctx context.Context, tenant, id string) (d schemas.DeadLetter, err error) {
	if schemas.CheckName("tenant", tenant) != nil || !names.IsTaskID(id) {
		return d, ErrUnknownTask
	}
	rec, err := c.find(ctx, tenant, id)
	if err != nil && !errors.Is(err, ErrUnknownTask) {
		return d, err
	}
	known := err == nil
	letters, err := latest(ctx, c, streamDead, deadSubject(tenant, id), 1,
		func(m *nats.Msg) (schemas.DeadTask, bool, error) {
			letter, err := parseDeadLetter(tenant, m)
			return letter, true, err
		})
	if err != nil {
		return d, fmt.Errorf("read the dead letter of task %s: %w", id, err)
	}
	if len(letters) == 0 && known {
		return d, noLetter(rec)
	}
	if len(letters) == 0 {
		return d, ErrUnknownTask
	}
	d.DeadTask = letters[0]
	if known {
		whole, err := c.whole(ctx, rec)
		if err != nil {
			return d, err
		}
		d.Record = &whole
	}
	return d, nil
}
