package ingest

import (
	"context"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// postEvents accepts CloudEvents in any of the three modes of the HTTP binding.
func (s *Server) postEvents(w http.ResponseWriter, r *http.Request) error {
	m, e := contentMode(r.Header)
	if e != nil {
		if isJSON(r.Header.Get("Content-Type")) {
			e.Hint = "send a task in JSON to /v1/tasks"
		}
		return e
	}
	wait, done, err := s.waitOf(r)
	if err != nil {
		return err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	if m == batchMode {
		return s.postBatch(w, r, body)
	}
	ev, e := decodeOne(m, r.Header, body)
	if e != nil {
		return e
	}
	if isForeign(ev) {
		accepted, err := s.publish(r.Context(), ev)
		if err != nil {
			return pathInBody(err, m)
		}
		writeJSON(w, http.StatusAccepted, accepted)
		return nil
	}
	rec, err := s.submit(r.Context(), ev)
	if err != nil {
		return pathInBody(err, m)
	}
	return s.respondAccepted(w, r, rec, wait, done)
}

// isForeign reports whether an event's type is not one of the fleet's own. Such events are for triggers. Events of the
// fleet's types are tasks, or refused.
func isForeign(ev event.Event) bool { return !strings.HasPrefix(ev.Type(), jobs.ReservedTypes) }

// publish stores an event for the tenant's triggers.
func (s *Server) publish(ctx context.Context, ev event.Event) (schemas.AcceptedEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.QueueTime)
	defer cancel()
	err := jobs.CheckOutside(ev)
	if err == nil {
		err = s.queue.PublishEvent(ctx, identityOf(ctx).tenant, ev)
	}
	return schemas.AcceptedEvent{ID: ev.ID(), Source: ev.Source(), Type: ev.Type()}, err
}

// pathInBody changes an error's path from one that points into the data, or that is the name of an attribute, to one
// that points into the request body. In binary mode, the data is the body, attributes are headers, and the path stays.
func pathInBody(err error, m mode) error {
	e := apierror.Of(err)
	if m == binaryMode || e.Path == "" && e.Code != errcode.BadData {
		return err
	}
	moved := *e
	if e.Path == "" || strings.HasPrefix(e.Path, "/") {
		moved.Path = "/data" + e.Path
	} else {
		moved.Path = "/" + e.Path
	}
	return &moved
}

// batchItem is the response to one event of a batch: a record, an accepted event or an error.
type batchItem struct {
	Status int             `json:"status"` // HTTP status that this event would have had on its own
	Record *schemas.Record `json:"record,omitempty"`
	// Event is set instead of Record for an event that is not a task.
	Event *schemas.AcceptedEvent `json:"event,omitempty"`
	Error *apierror.Error        `json:"error,omitempty"`
}

// postBatch responds with one item for each event, in order. The status is 202 if all were accepted, else 207.
// If the queue does not respond to an event, all later events are refused.
func (s *Server) postBatch(w http.ResponseWriter, r *http.Request, body []byte) error {
	events, e := decodeBatch(body, s.o.Limits.Batch)
	if e != nil {
		return e
	}
	items := make([]batchItem, len(events))
	status := http.StatusAccepted
	var queueError *apierror.Error // the error for the first event to which the queue did not respond
	for i, ev := range events {
		items[i] = s.postBatchItem(r.Context(), ev, &queueError)
		if items[i].Error != nil {
			status = http.StatusMultiStatus
		}
	}
	writeJSON(w, status, items)
	return nil
}

// postBatchItem accepts one event of a batch, unless the queue did not respond to an earlier one.
func (s *Server) postBatchItem(ctx context.Context, body []byte, queueError **apierror.Error) batchItem {
	if *queueError != nil {
		return batchItem{Status: (*queueError).Status, Error: *queueError}
	}
	ev, e := decodeStructured(body)
	if e != nil {
		return batchItem{Status: e.Status, Error: e}
	}
	item := batchItem{Status: http.StatusAccepted}
	var err error
	if isForeign(ev) {
		item.Event = new(schemas.AcceptedEvent)
		*item.Event, err = s.publish(ctx, ev)
	} else {
		item.Record = new(schemas.Record)
		*item.Record, err = s.submit(ctx, ev)
	}
	if err == nil {
		return item
	}
	e = apierror.Of(pathInBody(err, structuredMode))
	if e.Status >= 500 {
		s.o.Telemetry.Log.WarnContext(ctx, "batch accepted in part", "error", err.Error())
		*queueError = e
	}
	return batchItem{Status: e.Status, Error: e}
}

// optionsEvents is the handshake of the CloudEvents web hook specification: a caller that may submit tasks names
// the origin from which it will send events. Only the backlog limits their rate.
func (s *Server) optionsEvents(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Allow", "POST, OPTIONS")
	if origin := r.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
