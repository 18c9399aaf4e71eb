package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Cancel cancels a task and returns its record. If the task has never run, it is cancelled when Cancel returns. If it
// runs or waits for another run, Cancel only records the request, and a worker ends the task: it first finds out
// whether a run has committed. A terminal task does not change.
func (c *Client) Cancel(ctx context.Context, tenant, id string) (schemas.Record, error) {
	before, after, err := c.change(ctx, tenant, id, func(r *storedRecord) (bool, error) {
		if r.Status.Terminal() {
			return false, nil
		}
		requestCancel(r)
		return true, nil
	})
	switch {
	case err != nil:
		return schemas.Record{}, err
	case before.Status.Terminal():
		return c.whole(ctx, after)
	case after.Status == schemas.Cancelled:
		c.tel.completed.Add(ctx, 1, attrStatus(after.Pool, after.Status))
		c.removeQueued(ctx, before, after)
		return after.Record, nil
	case after.Status == schemas.RetryWait:
		if err := c.promoteNow(ctx, after); err != nil {
			c.opts.Log.DebugContext(ctx, "delayed task not promoted", "task_id", id, "error", err)
		}
		return after.Record, nil
	default:
		return after.Record, c.nc.Publish("cancel."+tenant+"."+id, nil)
	}
}

// CancelEarly cancels the task of an event that is not submitted yet: a later submission finds a cancelled task, which
// does not run. If the task exists, CancelEarly is Cancel. The error is a *RefusedError if the queue would refuse the
// event.
func (c *Client) CancelEarly(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	s, err := c.newSubmission(ctx, tenant, ev)
	if err != nil {
		return schemas.Record{}, err
	}
	r := s.record(ctx, 0, time.Now())
	requestCancel(&r)
	rec, err := c.create(ctx, r)
	switch {
	case err != nil && !errors.Is(err, ErrKeyReused):
		return schemas.Record{}, err
	case rec.Status.Terminal():
		return rec, nil
	}
	return c.Cancel(ctx, tenant, s.id)
}

// requestCancel cancels a task that has never run. For other tasks, it records the request for the worker that runs or
// claims the task.
func requestCancel(r *storedRecord) {
	if r.Run > 0 {
		r.CancelRequested = true
		return
	}
	now := time.Now().UTC()
	r.CancelRequested, r.Status, r.EndedAt = true, schemas.Cancelled, now
	r.Result = resultWith(schemas.Cancelled, errorCancelled())
	fillFromRecord(r.Result, &r.Record, now)
}

// promoteNow moves the message of a delayed task from DELAYED to TASKS. If it fails, the message is moved when it is
// due.
func (c *Client) promoteNow(ctx context.Context, r storedRecord) error {
	if r.QueueSeq != 0 {
		return nil // the message is in TASKS, and delayed by at most maxShortDelay
	}
	msg, remove, err := c.queuedMessage(ctx, r)
	if err != nil {
		return err
	}
	subject, _, _ := cutLast(msg.Header.Get("Nats-Schedule-Target"))
	l, ok := laneOf(subject)
	if !ok {
		return fmt.Errorf("promote task %s: the delayed message has no valid target: %q", r.TaskID, subject)
	}
	if err := c.publishDue(ctx, l, r.TaskID, msg.Header, msg.Data); err != nil {
		return err
	}
	return remove()
}

// removeQueued sends the result of a task that was cancelled before it ran, keeps the task's event, and removes its
// message. After an error, or if the task has a session, the message stays: the worker that gets it sends the result
// again, adds the task to the session's log, and removes the message.
func (c *Client) removeQueued(ctx context.Context, before, after storedRecord) {
	if strings.HasPrefix(after.Source, WorkflowSource) {
		return // the worker that gets the message advances the workflow
	}
	msg, remove, err := c.queuedMessage(ctx, before)
	if err == nil {
		if ev, decodeErr := decodeNATS(msg.Header, msg.Data); decodeErr == nil {
			if to := extension(ev, "replyto"); replyAllowed(after.Tenant, to, c.opts.AnyInbox) {
				err = c.reply(ctx, to, after, after.Result)
			}
		}
	}
	if err == nil {
		c.keepEvent(ctx, after.Tenant, after.TaskID, &nats.Msg{Header: msg.Header, Data: msg.Data})
	}
	switch {
	case err != nil:
	case after.Session != "":
		err = c.promoteNow(ctx, before)
	default:
		err = remove()
		if ref := msg.Header.Get("ce-dataref"); ref != "" && err == nil {
			c.dropData(ctx, after.Tenant, ref)
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		c.opts.Log.DebugContext(ctx, "message of a cancelled task not removed", "task_id", after.TaskID, "error", err)
	}
}

// queuedMessage returns the message of a queued or delayed task, and a function that removes it.
func (c *Client) queuedMessage(
	ctx context.Context, r storedRecord,
) (*jetstream.RawStreamMsg, func() error, error) {
	name := streamTasks
	if r.QueueSeq == 0 {
		name = streamDelayed
	}
	stream, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if r.QueueSeq != 0 {
		m, err := c.getMsg(ctx, name, r.QueueSeq)
		return m, func() error { return stream.DeleteMsg(ctx, r.QueueSeq) }, err
	}
	subject := delayedSubject(r.Tenant, r.TaskID, r.Run)
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // earlier versions store it without the run
		subject = delayedPrefix + r.Tenant + "." + r.TaskID
		m, err = stream.GetLastMsgForSubject(ctx, subject)
	}
	return m, func() error { return stream.Purge(ctx, jetstream.WithPurgeSubject(subject)) }, err
}
