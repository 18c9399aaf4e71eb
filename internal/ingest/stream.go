package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// lastID is the id of the final event. A browser that resumes after it gets 204, and does not connect again.
const lastID = "end"

// getTaskEvents streams a task as server-sent events. It sends a "progress" event for each stage and piece of
// output, with its sequence number as the id, beginning after Last-Event-ID. The last event is "record", with the
// final record. Comments keep an idle connection open. When the server drains, the stream ends, and the client
// resumes it at another process.
func (s *Server) getTaskEvents(w http.ResponseWriter, r *http.Request) error {
	id, tenant := r.PathValue("id"), identityOf(r.Context()).tenant
	last := r.Header.Get("Last-Event-ID")
	if last == lastID {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	var from uint64
	if last != "" {
		var err error
		if from, err = strconv.ParseUint(last, 10, 64); err != nil {
			return badParameter("Last-Event-ID", "it must be the id of an event of this stream")
		}
	}
	if !names.IsTaskID(id) {
		return jobs.ErrUnknownTask
	}
	if _, err := s.record(r.Context(), id); err != nil {
		return err // the response can still have an error status
	}
	if r.Method == http.MethodHead {
		newStream(w)
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()

	var out *stream // nil as long as the response can still have an error status
	stopHeartbeat := func() {}
	defer func() { stopHeartbeat() }()
	err := s.queue.Watch(ctx, tenant, id, from, func() {
		out = newStream(w)
		stopHeartbeat = clock.Repeat(ctx, s.o.Limits.Heartbeat, func() {
			if out.write(": alive\n\n") != nil {
				cancel() // the client has disconnected
			}
		})
	}, func(seq uint64, p schemas.Progress) error {
		return out.send(strconv.FormatUint(seq, 10), "progress", p)
	})
	switch {
	case out == nil && ctx.Err() != nil:
		newStream(w) // it ends at once
		return nil
	case out == nil:
		return err
	}
	if err == nil {
		err = s.sendRecord(ctx, out, id)
	}
	if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		s.o.Telemetry.Log.WarnContext(r.Context(), "event stream interrupted", "task_id", id, "error", err.Error())
	}
	return nil
}

func (s *Server) sendRecord(ctx context.Context, out *stream, id string) error {
	rec, err := s.record(ctx, id)
	if err != nil {
		return err
	}
	return out.send(lastID, "record", rec)
}

// stream writes server-sent events.
type stream struct {
	mu sync.Mutex
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // tells proxies not to buffer
	w.WriteHeader(http.StatusOK)
	st := &stream{w: w, rc: http.NewResponseController(w)}
	_ = st.write(": codefleet\n\n") // some clients wait for the first bytes
	return st
}

func (st *stream) send(id, event string, v any) error {
	data, err := json.Marshal(v) // has no line breaks, so one data line is enough
	if err != nil {
		return err
	}
	return st.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, event, data))
}

func (st *stream) write(s string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, err := io.WriteString(st.w, s); err != nil {
		return err
	}
	return st.rc.Flush()
}
