package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// Cancel asks for the end of a task. A queued one is cancelled when Cancel returns; a running one
// ends as soon as its worker hears of it; a terminal one stays as it is. It returns the record after.
func (c *Client) Cancel(ctx context.Context, tenant, id string) (schemas.Record, error) {
	for range claimTries {
		e, err := c.find(ctx, tenant, id)
		if err != nil {
			return schemas.Record{}, err
		}
		if e.Status.Terminal() {
			return c.whole(ctx, e)
		}
		before := e
		change(&e)
		err = c.swap(ctx, &e)
		if errors.Is(err, errStale) || errors.Is(err, errAmbiguous) && ctx.Err() == nil {
			continue // read and see
		}
		if err != nil {
			return schemas.Record{}, err
		}
		if e.Status == schemas.Cancelled {
			c.withdraw(ctx, before, e)
			return e.Record, nil
		}
		return e.Record, c.nc.Publish("cancel."+tenant+"."+id, nil)
	}
	return schemas.Record{}, fmt.Errorf("cancel task %s: its record kept changing", id)
}

// change cancels a task that nobody runs, and asks the worker of one that somebody does.
func change(e *entry) {
	if e.Status == schemas.Running {
		e.CancelRequested = true
		return
	}
	now := time.Now().UTC()
	e.CancelRequested, e.Status, e.EndedAt = true, schemas.Cancelled, now
	e.Result = &schemas.Result{
		TaskID: e.TaskID, Tenant: e.Tenant, Session: e.Session, Status: schemas.Cancelled, Attempt: e.Run,
		Source: e.Source, EventID: e.EventID, TraceID: e.TraceID, Error: errorCancelled(),
		SubmittedAt: e.SubmittedAt, StartedAt: e.StartedAt, EndedAt: now,
	}
	e.Result.TimingMS.Total = milliseconds(now.Sub(e.SubmittedAt))
	e.Result.TimingMS.Queued = e.Result.TimingMS.Total
	fillEmpty(e.Result, e.Workspace)
}

// withdraw sends the result of a task that was cancelled before it ran, and takes its entry out of
// the queue. All of it is for convenience: a worker that finds the entry does the same.
func (c *Client) withdraw(ctx context.Context, before, after entry) {
	msg, remove, err := c.queued(ctx, before)
	if err == nil && msg != nil {
		if ev, decodeErr := DecodeNATS(msg.Header, msg.Data); decodeErr == nil {
			if to := extension(ev, "replyto"); replyAllowed(after.Tenant, to, c.opts.AnyInbox) {
				err = c.reply(ctx, to, after, after.Result)
			}
		}
		err = errors.Join(err, remove())
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		c.opts.Log.DebugContext(ctx, "withdraw a cancelled task", "task", after.TaskID, "error", err)
	}
}

// queued finds the entry of a task that waits, and a way to remove it.
func (c *Client) queued(ctx context.Context, e entry) (*nats.Msg, func() error, error) {
	if e.QueueSeq == 0 {
		stream, err := c.js.Stream(ctx, streamDelayed)
		if err != nil {
			return nil, nil, err
		}
		subject := delayedSubject(e.Tenant, e.TaskID)
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return nil, nil, err
		}
		return &nats.Msg{Header: m.Header, Data: m.Data}, func() error {
			return stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}, nil
	}
	stream, err := c.js.Stream(ctx, streamTasks)
	if err != nil {
		return nil, nil, err
	}
	m, err := stream.GetMsg(ctx, e.QueueSeq)
	if err != nil {
		return nil, nil, err
	}
	return &nats.Msg{Header: m.Header, Data: m.Data}, func() error { return stream.DeleteMsg(ctx, e.QueueSeq) }, nil
}
