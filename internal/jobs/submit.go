package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

const (
	runHeader = "Codefleet-Run" // runs begun before this entry of TASKS was made; absent: 0

	codeSubjectFull = 10077 // the server's code for a stream or subject at its limit
)

// Submit queues the task that ev describes for tenant and returns its record. The pool, when the
// data names none, is "default"; the priority, when the attribute is absent, "normal".
//
// It is idempotent for the life of the record: the same tenant, source and key (idempotencykey, or
// else id) is the same task, whatever has become of it. When the data differ the record of the first
// is returned with ErrKeyReused. Other errors: *RefusedError, ErrBacklogFull, or the connection's;
// after the latter the task may or may not be queued, and Submit may be called again.
// Data above 256 KiB travels through the object store, up to MaxData.
func (c *Client) Submit(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	return c.traced(ctx, tenant, ev, false)
}

// SubmitNew is Submit of an event whose key was made for it just now, and is submitted for the first
// time: it does not ask whether the task is there.
func (c *Client) SubmitNew(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	return c.traced(ctx, tenant, ev, true)
}

func (c *Client) traced(ctx context.Context, tenant string, ev event.Event, isNew bool) (schemas.Record, error) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = extract(ctx, nil, ev)
	}
	ctx, span := c.tel.Start(ctx, "task.publish", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("messaging.system", "nats"), attribute.String("codefleet.tenant", tenant)))
	defer span.End()
	rec, err := c.submit(ctx, tenant, ev, isNew)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return rec, err
	}
	span.SetAttributes(attribute.String("codefleet.task", rec.TaskID))
	return rec, nil
}

func (c *Client) submit(ctx context.Context, tenant string, ev event.Event, isNew bool) (schemas.Record, error) {
	o, err := c.order(tenant, ev, c.opts.Policy)
	if err == nil && !o.expires.IsZero() && !time.Now().Before(o.expires) {
		err = refuse(errcode.Expired, "expirytime", "the time has passed")
	}
	if err != nil {
		c.tel.refused.Add(ctx, 1)
		return schemas.Record{}, err
	}
	rec := o.record(ctx, 0, time.Now())
	if !isNew {
		if found, err := c.existing(ctx, rec); !errors.Is(err, ErrUnknownTask) {
			return found, err
		}
	}
	claimed, err := c.listen(&rec)
	if err != nil {
		return schemas.Record{}, err
	}
	defer claimed.stop()
	// The entry first, the record second: a crash between them leaves a task that simply runs, the
	// other way round would leave a record that nobody works on.
	if rec.QueueSeq, err = c.enqueue(ctx, &o); err != nil {
		return schemas.Record{}, err
	}
	c.tel.submitted.Add(ctx, 1, attrPool(o.pool))
	if e, ok := claimed.wait(ctx); ok {
		return e.Record, nil
	}
	if c.opts.Producer {
		return rec.Record, nil
	}
	switch err := c.swap(ctx, &rec); {
	case err == nil:
		return rec.Record, nil
	case errors.Is(err, errStale), errors.Is(err, errAmbiguous): // a worker was faster, or it is ours after all
		return c.existing(ctx, rec)
	default:
		return schemas.Record{}, err
	}
}

// existing returns the record that the task of rec has already.
func (c *Client) existing(ctx context.Context, rec entry) (schemas.Record, error) {
	found, err := c.find(ctx, rec.Tenant, rec.TaskID)
	if err != nil {
		return schemas.Record{}, err
	}
	whole, err := c.whole(ctx, found)
	if err == nil && found.DataHash != rec.DataHash {
		err = fmt.Errorf("%w: task %s", ErrKeyReused, rec.TaskID)
	}
	return whole, err
}

// enqueue publishes the task's entry and returns its sequence in TASKS.
func (c *Client) enqueue(ctx context.Context, o *order) (uint64, error) {
	ev := o.ev
	if len(o.data) > inlineMax && !c.opts.Producer {
		ev = ev.Clone()
		name := o.tenant + "/" + o.id + "/data"
		if err := c.putObject(ctx, name, o.data); err != nil {
			return 0, fmt.Errorf("submit task %s: %w", o.id, err)
		}
		ev.DataEncoded = nil
		ev.SetExtension("dataref", objectRef(name))
	}
	if most := c.nc.MaxPayload(); int64(len(ev.DataEncoded)) > most-64<<10 {
		return 0, refuse(errcode.TooLarge, "", "data of %d bytes do not fit a message of at most %d: submit over HTTP", len(ev.DataEncoded), most)
	}
	header, data, err := EncodeNATS(ev)
	if err != nil {
		return 0, refuse(errcode.BadEvent, "", "%s", err)
	}
	inject(ctx, header)
	if origin := header.Get("traceparent"); origin != "" && header.Get("ce-traceparent") == "" {
		header.Set("ce-traceparent", origin)
	}
	msg := &nats.Msg{Subject: taskSubject(o.pool, o.priority, o.tenant), Header: header, Data: data}
	return c.publishTask(ctx, msg, o.id, 0)
}

// publishTask stores an entry in TASKS. Publishing the same run of a task again within the
// deduplication window does nothing.
func (c *Client) publishTask(ctx context.Context, msg *nats.Msg, id string, run int) (uint64, error) {
	seq, err := c.publishOnce(ctx, msg, id+"."+strconv.Itoa(run))
	if err == nil {
		return seq, nil
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeSubjectFull {
		return 0, ErrBacklogFull
	}
	return 0, fmt.Errorf("publish task %s: %w", id, err)
}

// publishOnce stores msg in TASKS unless it is there already under the same id. The server knows one
// set of ids for all tenants, and a producer may write any: so an id that is taken counts only where
// the same subject has it. An entry too many does no harm, the record settles it.
func (c *Client) publishOnce(ctx context.Context, msg *nats.Msg, id string) (uint64, error) {
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err == nil && ack.Duplicate && !c.holds(ctx, ack.Sequence, msg.Subject) {
		ack, err = c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id+"."+rand.Text()))
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// holds reports whether the entry seq of TASKS is there, and of this subject.
func (c *Client) holds(ctx context.Context, seq uint64, subject string) bool {
	if c.opts.Producer { // it may not look
		return false
	}
	tasks, err := c.js.Stream(ctx, streamTasks)
	if err != nil {
		return false
	}
	entry, err := tasks.GetMsg(ctx, seq)
	return err == nil && entry.Subject == subject
}
