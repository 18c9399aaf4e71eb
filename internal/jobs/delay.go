package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Tasks that are to run later wait in DELAYED as timers, not in TASKS, where they would count
// against the tenant's cap. When a timer fires, the server moves the entry to due.…, and any worker
// promotes it to TASKS.

const (
	promoter        = "promote"
	promoteAckWait  = 5 * time.Second
	promotePatience = 20 * time.Second // of one request for due entries
	fullRetry       = 5 * time.Second  // when the tenant's backlog is full
)

// delay puts the entry into DELAYED until at, changes the record, and acknowledges. A crash in
// between leaves a timer too many, whose entry will not own the record.
func (r *run) delay(ctx context.Context, at time.Time, change func(*entry)) error {
	msg := &nats.Msg{Subject: delayedSubject(r.tenant, r.id), Header: ownHeaders(r.d.msg.Header), Data: r.d.msg.Data}
	msg.Header.Set(runHeader, strconv.Itoa(r.rec.Run))
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339Nano)) // nats.go's own option cuts it to seconds
	msg.Header.Set("Nats-Schedule-Target", "due."+r.pool+"."+r.priority+"."+r.tenant+"."+r.id)
	if _, err := r.w.c.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("delay task %s: %w", r.id, err)
	}
	err := r.update(ctx, func(e *entry) {
		change(e)
		e.QueueSeq = 0
	})
	if err != nil {
		return err
	}
	return r.d.ack(ctx, r.w.c)
}

func delayedSubject(tenant, id string) string { return "delayed." + tenant + "." + id }

// ownHeaders returns the headers without those that mean something to the server.
func ownHeaders(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+3)
	for key, values := range h {
		if !strings.HasPrefix(strings.ToLower(key), "nats-") {
			out[key] = values
		}
	}
	return out
}

// promote moves due entries to their queue until ctx ends. Every worker does it, for all pools.
func (w *Worker) promote(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.promoteOne(ctx); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "promote a delayed task", "error", err)
			sleep(ctx, time.Second)
		}
	}
}

// promoteOne waits for one due entry. The request has an inbox of its own: its end tells the server
// not to send any more.
func (w *Worker) promoteOne(ctx context.Context) error {
	nc := w.c.nc
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { w.logged(ctx, "unsubscribe", sub.Unsubscribe()) }()
	request := fmt.Appendf(nil, `{"batch": 1, "expires": %d}`, promotePatience.Nanoseconds())
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+streamDelayed+"."+promoter, sub.Subject, request); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, promotePatience+requestTimeout)
	defer cancel()
	msg, err := sub.NextMsgWithContext(wait)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case msg.Reply == "": // a status: nothing was due
		if status := msg.Header.Get("Status"); status != "408" {
			return fmt.Errorf("server says %s %s", status, msg.Header.Get("Description"))
		}
		return nil
	}
	return w.promoteEntry(context.WithoutCancel(ctx), msg)
}

func (w *Worker) promoteEntry(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, promoteAckWait)
	defer cancel()
	tail, id, ok := cutLast(msg.Subject)
	l, isLane := laneOf(tail)
	if !ok || !isLane {
		return w.c.nc.Publish(msg.Reply, []byte("+TERM not a task of the fleet"))
	}
	out := &nats.Msg{Subject: l.subject(), Header: ownHeaders(msg.Header), Data: msg.Data}
	// Not the id of the first entry of the same run: that one may be remembered as a duplicate.
	_, err := w.c.publishOnce(ctx, out, id+"."+msg.Header.Get(runHeader)+".due")
	if api, isAPI := errors.AsType[*jetstream.APIError](err); isAPI && api.ErrorCode == codeSubjectFull {
		return w.c.nc.Publish(msg.Reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, fullRetry.Nanoseconds()))
	}
	if err != nil {
		return err
	}
	_, err = w.c.request(ctx, msg.Reply, []byte("+ACK"))
	return err
}

// cutLast cuts the last token off a subject.
func cutLast(subject string) (before, last string, found bool) {
	i := strings.LastIndexByte(subject, '.')
	if i < 0 {
		return subject, "", false
	}
	return subject[:i], subject[i+1:], true
}
