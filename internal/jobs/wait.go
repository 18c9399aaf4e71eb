package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

const rereadEvery = 2 * time.Second // how often waiters read the record, because notifications may be lost

// Wait returns the record once it is terminal. If ctx ends first, it returns the latest record that it has read,
// and the cause.
func (c *Client) Wait(ctx context.Context, tenant, id string) (schemas.Record, error) {
	return c.WaitUntil(ctx, tenant, id, func(schemas.Record) bool { return false })
}

// WaitUntil is like Wait, but returns on a record for which done is true as well. done must be quick. It may be called
// with a record that is older than the one before.
func (c *Client) WaitUntil(
	ctx context.Context, tenant, id string, done func(schemas.Record) bool,
) (schemas.Record, error) {
	r, err := c.wait(ctx, tenant, id, done)
	if err != nil {
		return r.Record, err
	}
	return c.whole(ctx, r)
}

// wait is WaitUntil, but a result that is in the object store stays there. It subscribes before it reads, so that it
// misses no transition.
func (c *Client) wait(
	ctx context.Context, tenant, id string, done func(schemas.Record) bool,
) (last storedRecord, err error) {
	if schemas.CheckName("tenant", tenant) != nil || !names.IsTaskID(id) {
		return last, ErrUnknownTask
	}
	sub, err := c.nc.SubscribeSync(notifySubject(tenant, id))
	if err != nil {
		return last, fmt.Errorf("wait for task %s: %w", id, err)
	}
	defer unsubscribe(sub)
	finished := func(r storedRecord) bool { return r.Status.Terminal() || r.TaskID != "" && done(r.Record) }
	for {
		r, err := c.find(ctx, tenant, id)
		switch {
		case err == nil:
			last = r
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case errors.Is(err, ErrUnknownTask) && !c.opts.Producer:
			return last, err
		case errors.Is(err, nats.ErrConnectionClosed):
			return last, err
		}
		if finished(last) {
			return last, nil
		}
		if last, err = nextRecord(ctx, sub, id, last, finished); err != nil || finished(last) {
			return last, err
		}
	}
}

// nextRecord reads notifications until a record is finished or it is time to read the record itself. It returns
// the latest record.
func nextRecord(
	ctx context.Context, sub *nats.Subscription, id string, last storedRecord, finished func(storedRecord) bool,
) (storedRecord, error) {
	until, cancel := context.WithTimeout(ctx, rereadEvery)
	defer cancel()
	for {
		msg, err := sub.NextMsgWithContext(until)
		switch {
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case until.Err() != nil:
			return last, nil
		case err != nil:
			return last, err
		}
		r, err := decodeRecord(id, 0, msg.Data)
		if err != nil {
			return last, nil // a delete marker
		}
		if last = r; finished(last) {
			return last, nil
		}
	}
}
