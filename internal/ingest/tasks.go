package ingest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/propagation"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/schemas"
)

// postTask accepts a task as one JSON object. It has the task's fields and those of the envelope, which are named like
// the CloudEvents attributes.
func (s *Server) postTask(w http.ResponseWriter, r *http.Request) error {
	wait, done, err := s.waitOf(r)
	if err != nil {
		return err
	}
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		e := badMediaType(ct, "a task is JSON")
		e.Hint = "send the header Content-Type: application/json, or CloudEvents to /v1/events"
		return e
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	ev, e := eventOfTask(r.Header.Get("Idempotency-Key"), body)
	if e != nil {
		return e
	}
	rec, err := s.submit(r.Context(), ev)
	if err != nil {
		return err
	}
	return s.respondAccepted(w, r, rec, wait, done)
}

// respondAccepted waits for a submitted task, as await does, and responds with its record.
func (s *Server) respondAccepted(
	w http.ResponseWriter, r *http.Request, rec schemas.Record, wait time.Duration, done func(schemas.Record) bool,
) (err error) {
	if wait > 0 && !rec.Status.Terminal() {
		if rec, err = s.await(r.Context(), rec.TaskID, wait, done); err != nil {
			return err
		}
	}
	writeAccepted(w, rec)
	return nil
}

// writeAccepted responds with a record: 200 if the task has ended, else 202.
func writeAccepted(w http.ResponseWriter, rec schemas.Record) {
	w.Header().Set("Location", "/v1/tasks/"+rec.TaskID)
	status := http.StatusAccepted
	if rec.Status.Terminal() {
		status = http.StatusOK
	}
	writeJSON(w, status, rec)
}

// submit queues an event. An event without a trace gets the request's trace. An event's own trace continues if
// the request has none.
func (s *Server) submit(ctx context.Context, ev event.Event) (schemas.Record, error) {
	if err := jobs.CheckOutside(ev); err != nil {
		return schemas.Record{}, err
	}
	carrier := propagation.MapCarrier{}
	parent, _ := ev.Extensions()["traceparent"].(string)
	if traced, _ := ctx.Value(tracedKey{}).(bool); parent != "" && !traced {
		carrier["traceparent"] = parent
		carrier["tracestate"], _ = ev.Extensions()["tracestate"].(string)
		ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	}
	if parent == "" {
		propagation.TraceContext{}.Inject(ctx, carrier)
		for name, value := range carrier {
			ev.SetExtension(name, value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.QueueTime)
	defer cancel()
	return s.queue.Submit(ctx, identityOf(ctx).tenant, ev)
}

// envelope lists the fields of a submitted task that become attributes of its CloudEvent.
var envelope = []string{
	"workspace", "session", "priority", "replyto", "expirytime", "source", "idempotencykey", "tenant",
	"partitionkey",
}

// eventOfTask returns the event of a task in JSON. key is the header Idempotency-Key, which may be empty.
func eventOfTask(key string, body []byte) (event.Event, *apierror.Error) {
	fields, e := decodeMembers(body)
	if e != nil {
		return event.Event{}, e
	}
	attrs := map[string]any{
		"specversion": event.CloudEventsVersionV1, "type": schemas.TypeTask, "source": "codefleet/http",
		"datacontenttype": "application/json", "time": time.Now().UTC().Format(time.RFC3339Nano),
	}
	for _, name := range envelope {
		raw, ok := fields[name]
		delete(fields, name)
		if !ok {
			continue
		}
		var v string
		if err := strictjson.Decode(raw, &v); err != nil {
			return event.Event{}, badEvent("/"+name, "it must be a string")
		}
		attrs[name] = v
	}
	if err := setID(attrs, key); err != nil {
		return event.Event{}, err
	}
	data, err := tools.EncodeJSON(fields) // not longer than the body
	if err != nil {
		return event.Event{}, badJSON(body, err)
	}
	return build(attrs, bytes.TrimSuffix(data, []byte("\n")))
}

// setID sets the event's id: the idempotency key of the header or of the body, or else a random id.
func setID(attrs map[string]any, header string) *apierror.Error {
	inBody, named := attrs["idempotencykey"].(string)
	if named && inBody == "" { // the id would be random, and each repetition another task
		return emptyKey()
	}
	key, err := idempotencyKey(header, inBody)
	delete(attrs, "idempotencykey")
	attrs["id"] = cmp.Or(key, rand.Text())
	return err
}

// idempotencyKey returns the key of the header Idempotency-Key or of the body, or "" if neither has one. The header may
// have quotes (draft-ietf-httpapi-idempotency-key-header).
func idempotencyKey(header, inBody string) (string, *apierror.Error) {
	key := header
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	switch {
	case header != "" && key == "":
		return "", emptyKey()
	case key != "" && inBody != "" && key != inBody:
		return "", badEvent("/idempotencykey", "it differs from the header Idempotency-Key")
	}
	return cmp.Or(key, inBody), nil
}

func emptyKey() *apierror.Error {
	return badEvent("/idempotencykey", "it is empty: leave it out for its default")
}

// getTask responds with the record of a task, after the wait for which the request asks (see waitOf).
func (s *Server) getTask(w http.ResponseWriter, r *http.Request) error {
	wait, done, err := s.waitOf(r)
	if err != nil {
		return err
	}
	rec, err := s.await(r.Context(), r.PathValue("id"), wait, done)
	return respond(w, rec, err)
}

// await returns the record once the task has ended or done reports true, after wait, or when the server
// drains.
func (s *Server) await(
	ctx context.Context, id string, wait time.Duration, done func(schemas.Record) bool,
) (schemas.Record, error) {
	tenant := identityOf(ctx).tenant
	if !names.IsTaskID(id) {
		return schemas.Record{}, jobs.ErrUnknownTask
	}
	if wait == 0 {
		return s.record(ctx, id)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	rec, err := s.queue.WaitUntil(waiting, tenant, id, done)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		if rec.TaskID != "" {
			return rec, nil
		}
		return s.record(ctx, id) // the wait was too short for one read
	}
	return rec, err
}

func (s *Server) record(ctx context.Context, id string) (schemas.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.QueueTime)
	defer cancel()
	return s.queue.Record(ctx, identityOf(ctx).tenant, id)
}

func (s *Server) deleteTask(w http.ResponseWriter, r *http.Request, tenant, id string) error {
	rec, err := s.queue.Cancel(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	writeAccepted(w, rec)
	return nil
}

func (s *Server) getTasks(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	o := jobs.ListOptions{Limit: limit}
	for _, v := range r.URL.Query()["status"] {
		for name := range strings.SplitSeq(v, ",") {
			st := schemas.Status(name)
			if !isStatus(st) {
				return badParameter("status", "it must be queued, running, retry_wait, succeeded, failed, "+
					"blocked, timeout, cancelled, expired or dead")
			}
			o.Status = append(o.Status, st)
		}
	}
	list, err := s.queue.List(r.Context(), identityOf(r.Context()).tenant, o)
	return respondList(w, list, err)
}

func isStatus(s schemas.Status) bool {
	return s.Terminal() || s == schemas.Queued || s == schemas.Running || s == schemas.RetryWait
}
