package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Submit queues the task of event ev for tenant and returns its record. The pool defaults to "default", the
// priority to "normal".
//
// It is idempotent while the record is kept: events with the same tenant, source and key (idempotencykey, or
// else id) are the same task, whatever its status. If their data differs, Submit returns the first event's
// record with ErrKeyReused. Other errors are *RefusedError, ErrBacklogFull, ErrStorageFull and connection errors;
// after a connection error the task may be queued, and Submit may be called again. Data above 256 KiB goes through
// the object store, up to MaxData.
func (c *Client) Submit(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	return c.submitTraced(ctx, tenant, ev, false)
}

// SubmitNew is Submit for an event whose key is new: it saves the request that looks for an existing task.
func (c *Client) SubmitNew(ctx context.Context, tenant string, ev event.Event) (schemas.Record, error) {
	return c.submitTraced(ctx, tenant, ev, true)
}

func (c *Client) submitTraced(
	ctx context.Context, tenant string, ev event.Event, isNew bool,
) (schemas.Record, error) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = extract(ctx, nil, ev)
	}
	ctx, span := c.tel.Start(ctx, "task.publish", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("messaging.system", "nats"),
			attribute.String("codefleet.tenant", tenant)))
	defer span.End()
	rec, err := c.submit(ctx, tenant, ev, isNew)
	if _, isRefused := errors.AsType[*RefusedError](err); isRefused {
		c.tel.refused.Add(ctx, 1)
	}
	if err != nil {
		span.SetStatus(codes.Error, spanStatus(err))
		return rec, err
	}
	span.SetAttributes(attribute.String("codefleet.task", rec.TaskID))
	return rec, nil
}

func (c *Client) submit(ctx context.Context, tenant string, ev event.Event, isNew bool) (schemas.Record, error) {
	s, err := c.newSubmission(ctx, tenant, ev)
	if err != nil {
		return schemas.Record{}, err
	}
	now := time.Now()
	r := s.record(ctx, 0, now)
	expired := !s.expires.IsZero() && !now.Before(s.expires)
	if !isNew || expired { // an expired event may repeat a submission that was in time
		if found, err := c.existing(ctx, r); !errors.Is(err, ErrUnknownTask) {
			return found, err
		}
	}
	if expired {
		return schemas.Record{}, refuse(errcode.Expired, "expirytime", "the time has passed")
	}
	// Tasks of workflows are exempt: the message of a step that has ended stays in TASKS until the next step is
	// submitted, so at the limit no workflow could go on.
	if !strings.HasPrefix(r.Source, WorkflowSource) {
		if err := c.checkBacklog(ctx, tenant, &s.task); err != nil {
			return schemas.Record{}, err
		}
	}
	claim, err := c.watchForClaim(&r)
	if err != nil {
		return schemas.Record{}, err
	}
	defer claim.stop()
	// The message comes first: after a crash between the two writes the task runs without a record, whereas
	// a record without a message would never run.
	if r.QueueSeq, err = c.enqueue(ctx, &s); err != nil {
		return schemas.Record{}, err
	}
	c.tel.submitted.Add(ctx, 1, attrPool(s.pool))
	if claimed, ok := claim.wait(ctx); ok {
		return claimed.Record, checkKey(claimed, r)
	}
	if c.opts.Producer {
		return r.Record, nil
	}
	return c.create(ctx, r)
}

// create writes the record of a task that has none. It tries again, for requestTimeout at most, if a server was
// lost, and if a cluster refuses the record because it is still replicating the one that another process has written.
func (c *Client) create(ctx context.Context, r storedRecord) (schemas.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, tryTimeout)
		err := c.swap(try, &r)
		done()
		switch {
		case err == nil:
			return r.Record, nil
		case !errors.Is(err, errAmbiguous) && !errors.Is(err, errStale):
			return schemas.Record{}, err
		}
		found, findErr := c.existing(ctx, r) // created by a worker, by RecordTasks or by this call
		if !errors.Is(findErr, ErrUnknownTask) {
			return found, findErr
		}
		if clock.Sleep(ctx, replicationPause) != nil {
			return schemas.Record{}, fmt.Errorf("create record %s: %w", r.TaskID, err)
		}
	}
}

// existing returns the stored record of a task, with ErrKeyReused if its data differs from r's.
func (c *Client) existing(ctx context.Context, r storedRecord) (schemas.Record, error) {
	found, err := c.find(ctx, r.Tenant, r.TaskID)
	if err != nil {
		return schemas.Record{}, err
	}
	whole, err := c.whole(ctx, found)
	return whole, cmp.Or(err, checkKey(found, r))
}

// checkKey returns ErrKeyReused if the data of a stored record differs from that of r, which has the same key.
func checkKey(found, r storedRecord) error {
	if found.DataHash != r.DataHash {
		return fmt.Errorf("%w: task %s", ErrKeyReused, r.TaskID)
	}
	return nil
}

// enqueue publishes the task's message and returns its sequence in TASKS.
func (c *Client) enqueue(ctx context.Context, s *submission) (uint64, error) {
	ev, header, stored := s.event, s.header, ""
	if s.isLarge() && !c.opts.Producer {
		ev = ev.Clone()
		// Each submission needs a new name, because a task may use the data of another submission with the same key.
		name := s.tenant + "/" + s.id + "/" + rand.Text() + dataName
		err := c.reserve(ctx, s.tenant, int64(len(s.data)))
		if err == nil {
			err = c.putObject(ctx, name, s.data)
		}
		if _, isRefused := errors.AsType[*RefusedError](err); isRefused {
			return 0, err
		}
		if err != nil {
			return 0, fmt.Errorf("submit task %s: %w", s.id, err)
		}
		ev.DataEncoded = nil
		stored = objectRef(name)
		ev.SetExtension("dataref", stored)
		header = nil
	}
	if limit := c.nc.MaxPayload(); int64(len(ev.DataEncoded)) > limit-64<<10 {
		return 0, refuse(errcode.TooLarge, "", "data of %d bytes does not fit into a message; the limit is %d: "+
			"submit the task over HTTP", len(ev.DataEncoded), limit-64<<10)
	}
	if header == nil {
		var err error
		if header, _, err = encodeNATS(ev); err != nil {
			return 0, refuse(errcode.BadEvent, "", "%s", err)
		}
	}
	inject(ctx, header)
	if origin := header.Get("traceparent"); origin != "" && header.Get("ce-traceparent") == "" {
		header.Set("ce-traceparent", origin)
	}
	seq, err := c.publishOnce(ctx, &nats.Msg{Subject: s.subject(), Header: header, Data: ev.Data()}, s.id+".0")
	if stored != "" && (isSubjectFull(err) || err == nil && c.refersElsewhere(ctx, seq, header)) {
		c.dropData(ctx, s.tenant, stored)
	}
	if isSubjectFull(err) {
		return 0, ErrBacklogFull
	}
	if err != nil {
		return 0, fmt.Errorf("publish task %s: %w", s.id, err)
	}
	return seq, nil
}

// refersElsewhere reports whether message seq in TASKS refers to other data than header. It does if the server took our
// message for a duplicate: then seq is the earlier submission's message, and our data is not needed.
func (c *Client) refersElsewhere(ctx context.Context, seq uint64, header nats.Header) bool {
	m, err := c.getMsg(ctx, streamTasks, seq)
	return err == nil && m.Header.Get("ce-dataref") != header.Get("ce-dataref")
}
