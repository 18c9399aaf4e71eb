package ingest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// postTask takes a task as plain JSON: its fields, and beside them those of the envelope under the
// names that they have as attributes of a CloudEvent.
func (s *Server) postTask(w http.ResponseWriter, r *http.Request) error {
	wait, done, err := s.waitOf(r)
	if err != nil {
		return err
	}
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		e := badMediaType(ct, "a task is JSON here")
		e.Hint = "send the header Content-Type: application/json; CloudEvents go to /v1/events"
		return e
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	ev, e := plainEvent(r.Header.Get("Idempotency-Key"), body)
	if e != nil {
		return e
	}
	rec, err := s.submit(r.Context(), ev)
	if err != nil {
		return err
	}
	if wait > 0 && !rec.Status.Terminal() {
		if rec, err = s.await(r.Context(), rec.TaskID, wait, done); err != nil {
			return err
		}
	}
	accepted(w, rec)
	return nil
}

// accepted answers with a record: 200 when there is nothing left to wait for, else 202.
func accepted(w http.ResponseWriter, rec schemas.Record) {
	w.Header().Set("Location", "/v1/tasks/"+rec.TaskID)
	status := http.StatusAccepted
	if rec.Status.Terminal() {
		status = http.StatusOK
	}
	writeJSON(w, status, rec)
}

// envelope are the fields of a plain task that are not the task's own.
var envelope = []string{"workspace", "session", "priority", "replyto", "expirytime", "source", "idempotencykey", "tenant"}

// plainEvent makes an event of a plain task. key is the header's idempotency key, or empty.
func plainEvent(key string, body []byte) (event.Event, *apierror.Error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return event.Event{}, badJSON(body, err)
	}
	if fields == nil {
		return event.Event{}, apierror.New(errcode.BadJSON, "the task is null, not an object")
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
		if err := json.Unmarshal(raw, &v); err != nil {
			return event.Event{}, badEvent("/"+name, "it has to be a string")
		}
		if v != "" {
			attrs[name] = v
		}
	}
	if err := identify(attrs, key); err != nil {
		return event.Event{}, err
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return event.Event{}, badJSON(body, err)
	}
	return build(attrs, data)
}

// identify gives the event its id: the idempotency key of the header (which the standard-to-be
// writes in quotes) or of the body, or one that is used once.
func identify(attrs map[string]any, key string) *apierror.Error {
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	inBody, _ := attrs["idempotencykey"].(string)
	if key != "" && inBody != "" && key != inBody {
		return badEvent("/idempotencykey", "it is not the one in the header Idempotency-Key")
	}
	delete(attrs, "idempotencykey")
	attrs["id"] = cmp.Or(key, inBody, rand.Text())
	return nil
}

// getTask answers with the record, after ?wait= at the latest.
func (s *Server) getTask(w http.ResponseWriter, r *http.Request) error {
	wait, done, err := s.waitOf(r)
	if err != nil {
		return err
	}
	rec, err := s.await(r.Context(), r.PathValue("id"), wait, done)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, rec)
	return nil
}

// await returns the record once it is terminal, or done says so; or as it is after wait, or when the
// server drains.
func (s *Server) await(ctx context.Context, id string, wait time.Duration, done func(schemas.Record) bool) (schemas.Record, error) {
	tenant := identityOf(ctx).tenant
	if !taskID(id) {
		return schemas.Record{}, jobs.ErrUnknownTask
	}
	if wait == 0 {
		return s.record(ctx, id)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	rec, err := s.o.Jobs.WaitUntil(waiting, tenant, id, done)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		if rec.TaskID != "" {
			return rec, nil
		}
		return s.record(ctx, id) // the wait was too short for even one look
	}
	return rec, err
}

func (s *Server) record(ctx context.Context, id string) (schemas.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.QueueTime)
	defer cancel()
	return s.o.Jobs.Record(ctx, identityOf(ctx).tenant, id)
}

// taskID reports whether s can be the id of a task. What cannot never reaches the queue, where it
// would be a part of a subject.
func taskID(s string) bool {
	return len(s) == 26 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func (s *Server) deleteTask(w http.ResponseWriter, r *http.Request) error {
	if !taskID(r.PathValue("id")) {
		return jobs.ErrUnknownTask
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	rec, err := s.o.Jobs.Cancel(ctx, identityOf(ctx).tenant, r.PathValue("id"))
	if err != nil {
		return err
	}
	accepted(w, rec)
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
			if !known(st) {
				return badParameter("status", "it is one of queued, running, retry_wait, succeeded, failed, blocked, timeout, cancelled, expired, dead")
			}
			o.Status = append(o.Status, st)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	list, err := s.o.Jobs.List(ctx, identityOf(ctx).tenant, o)
	if err != nil {
		return err
	}
	writeList(w, list)
	return nil
}

// getAudit lists the tool calls of the tenant's tasks.
func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	task := r.URL.Query().Get("task")
	if task != "" && !taskID(task) {
		return badParameter("task", "it is the id of a task, 26 letters and digits")
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	list, err := s.o.Jobs.AuditTrail(ctx, identityOf(ctx).tenant, jobs.AuditOptions{Task: task, Limit: limit})
	if err != nil {
		return err
	}
	writeList(w, list)
	return nil
}

func known(s schemas.Status) bool {
	return s.Terminal() || s == schemas.Queued || s == schemas.Running || s == schemas.RetryWait
}

// writeList writes an array item by item, so that a long one is never in memory twice.
func writeList[T any](w http.ResponseWriter, items []T) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	sep := "["
	for _, item := range items {
		_, err := w.Write([]byte(sep))
		if errors.Join(err, enc.Encode(item)) != nil {
			return // the caller is gone
		}
		sep = ","
	}
	if len(items) == 0 {
		_, _ = w.Write([]byte("["))
	}
	_, _ = w.Write([]byte("]\n"))
}
