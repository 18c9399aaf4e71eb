package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/clock"
)

const (
	promoteWait     = 20 * time.Second // how long one request waits for a due message
	fullBacklogWait = 5 * time.Second  // delay until a due message is tried again if its lane is full
)

// promote moves due messages from DELAYED to TASKS until ctx ends. A message that it is moving then may still be moved
// until late ends. Every worker does so, for all pools.
func (w *Worker) promote(ctx, late context.Context) {
	out := outage{log: w.log, failed: "delayed task not promoted", again: "delayed tasks promoted again"}
	for ctx.Err() == nil {
		err := w.promoteNext(ctx, late)
		if out.report(ctx, err); err != nil {
			_ = clock.Sleep(ctx, time.Second) // the loop ends with ctx
		}
	}
}

// promoteNext waits for one due message and moves it. Each request has its own inbox; once that is closed, the
// server delivers nothing for the request.
func (w *Worker) promoteNext(ctx, late context.Context) error {
	nc := w.c.nc
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer unsubscribe(sub)
	request := fmt.Appendf(nil, `{"batch": 1, "expires": %d}`, promoteWait.Nanoseconds())
	err = nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+streamDelayed+"."+promoter, sub.Subject, request)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, promoteWait+requestTimeout)
	defer cancel()
	msg, err := sub.NextMsgWithContext(wait)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case msg.Reply == "": // a status instead of a message; 408 means that nothing was due
		if status := msg.Header.Get("Status"); status != "408" {
			return fmt.Errorf("request a due message: status %s %s", status, msg.Header.Get("Description"))
		}
		return nil
	}
	return w.promoteMessage(late, msg)
}

func (w *Worker) promoteMessage(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, promoteAckWait)
	defer cancel()
	subject, id, ok := cutLast(msg.Subject)
	l, isLane := laneOf(subject)
	if !ok || !isLane {
		return w.c.nc.Publish(msg.Reply, []byte("+TERM not a task of the fleet"))
	}
	err := w.c.publishDue(ctx, l, id, msg.Header, msg.Data)
	if isSubjectFull(err) {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		delay := grown(fullBacklogWait, meta.NumDelivered)
		return w.c.nc.Publish(msg.Reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds()))
	}
	if err != nil {
		return err
	}
	_, err = w.c.request(ctx, msg.Reply, []byte("+ACK"))
	return err
}

// publishDue publishes a message of DELAYED on its lane. Repeated calls publish it only once.
func (c *Client) publishDue(ctx context.Context, l lane, id string, header nats.Header, data []byte) error {
	msg := &nats.Msg{Subject: l.subject(), Header: keptHeaders(header), Data: data}
	// The id differs from that of the run's first message, and from those of earlier waits before the same run, which
	// the server may still remember. Earlier versions set no waitHeader.
	_, err := c.publishOnce(ctx, msg, id+"."+header.Get(runHeader)+header.Get(waitHeader)+".due")
	return err
}
