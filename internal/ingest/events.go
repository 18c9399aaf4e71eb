package ingest

import (
	"context"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/propagation"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// postEvents takes CloudEvents in any of the three modes of the HTTP binding.
func (s *Server) postEvents(w http.ResponseWriter, r *http.Request) error {
	m, e := contentMode(r.Header)
	if e != nil {
		if isJSON(r.Header.Get("Content-Type")) {
			e.Hint = "plain JSON goes to /v1/tasks"
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
	rec, err := s.submit(r.Context(), ev)
	if err != nil {
		return within(err, m)
	}
	if wait > 0 && !rec.Status.Terminal() {
		if rec, err = s.await(r.Context(), rec.TaskID, wait, done); err != nil {
			return err
		}
	}
	accepted(w, rec)
	return nil
}

// within puts the place in the data that an error names below the place that the data have in the
// body.
func within(err error, m mode) error {
	e := apierror.Of(err)
	if m == binaryMode || e.Code != errcode.BadData && !strings.HasPrefix(e.Path, "/") {
		return err
	}
	moved := *e
	moved.Path = "/data" + e.Path
	return &moved
}

// batchItem is the answer to one member of a batch: a record, or an error.
type batchItem struct {
	Status int             `json:"status"` // as the answer to this event alone would have had
	Record *schemas.Record `json:"record,omitempty"`
	Error  *apierror.Error `json:"error,omitempty"`
}

// postBatch answers for each member in its place: 202 when all were taken, else 207. Once the queue
// is away, the rest is not tried.
func (s *Server) postBatch(w http.ResponseWriter, r *http.Request, body []byte) error {
	members, e := decodeBatch(body, s.o.Limits.Batch)
	if e != nil {
		return e
	}
	answers := make([]batchItem, len(members))
	status := http.StatusAccepted
	var down *apierror.Error
	for i, m := range members {
		answers[i] = s.member(r.Context(), m, &down)
		if answers[i].Error != nil {
			status = http.StatusMultiStatus
		}
	}
	writeJSON(w, status, answers)
	return nil
}

// member takes one event of a batch, unless the queue was down for one before it.
func (s *Server) member(ctx context.Context, body []byte, down **apierror.Error) batchItem {
	if *down != nil {
		return batchItem{Status: (*down).Status, Error: *down}
	}
	ev, e := decodeStructured(body)
	if e != nil {
		return batchItem{Status: e.Status, Error: e}
	}
	rec, err := s.submit(ctx, ev)
	if err == nil {
		return batchItem{Status: http.StatusAccepted, Record: &rec}
	}
	e = apierror.Of(within(err, structuredMode))
	if e.Status >= 500 {
		s.o.Log.WarnContext(ctx, "batch not taken whole", "error", err.Error())
		*down = e
	}
	return batchItem{Status: e.Status, Error: e}
}

// submit queues an event. An event without a trace gets the request's; of a request without one, the
// trace goes on that the event brings.
func (s *Server) submit(ctx context.Context, ev event.Event) (schemas.Record, error) {
	carrier := propagation.MapCarrier{}
	brought, _ := ev.Extensions()["traceparent"].(string)
	if v := visitOf(ctx); brought != "" && (v == nil || !v.traced) {
		carrier["traceparent"] = brought
		carrier["tracestate"], _ = ev.Extensions()["tracestate"].(string)
		ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	}
	if brought == "" {
		propagation.TraceContext{}.Inject(ctx, carrier)
		for name, value := range carrier {
			ev.SetExtension(name, value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.QueueTime)
	defer cancel()
	return s.o.Jobs.Submit(ctx, identityOf(ctx).tenant, ev)
}

// optionsEvents is the handshake of the CloudEvents web hook specification: who has a token that may
// submit may name the origin from which its events will come. The rate is bounded by the backlog.
func (s *Server) optionsEvents(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Allow", "POST, OPTIONS")
	if origin := r.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
