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
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// lastID is the id of the final event. A browser that comes back with it is told not to.
const lastID = "end"

// getTaskEvents streams a task as server-sent events: "progress" for each step and piece of output,
// with its sequence number as the id, from behind Last-Event-ID on; at last "record" with the final
// record. Comments keep a silent connection alive. When the server drains, the stream just ends, and
// the reader resumes it elsewhere.
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
			return badParameter("Last-Event-ID", "it is the id of an event of this stream")
		}
	}
	if !taskID(id) {
		return jobs.ErrUnknownTask
	}
	if _, err := s.record(r.Context(), id); err != nil || r.Method == http.MethodHead {
		return err // as a status, while there still can be one
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()

	out := newStream(w, s.o.Limits.BodyTime)
	defer out.beat(ctx, s.o.Limits.Heartbeat, cancel)()
	err := s.o.Jobs.Watch(ctx, tenant, id, from, func(seq uint64, p schemas.Progress) error {
		return out.send(strconv.FormatUint(seq, 10), "progress", p)
	})
	if err == nil {
		err = s.sendRecord(ctx, out, id)
	}
	if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		s.o.Log.WarnContext(r.Context(), "event stream broke", "task_id", id, "error", err.Error())
	}
	return nil // the answer has begun: all that is left is to end it
}

func (s *Server) sendRecord(ctx context.Context, out *stream, id string) error {
	rec, err := s.record(ctx, id)
	if err != nil {
		return err
	}
	return out.send(lastID, "record", rec)
}

// stream writes server-sent events. Each write has its own deadline, so that a reader who stalls
// holds nothing for long.
type stream struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	rc      *http.ResponseController
	patient time.Duration
}

func newStream(w http.ResponseWriter, patient time.Duration) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies, pass it on as it comes
	w.WriteHeader(http.StatusOK)
	st := &stream{w: w, rc: http.NewResponseController(w), patient: patient}
	_ = st.write(": codefleet\n\n") // opens the stream for a reader that waits for its first bytes
	return st
}

func (st *stream) send(id, event string, v any) error {
	data, err := json.Marshal(v) // no line breaks, so one data line
	if err != nil {
		return err
	}
	return st.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, event, data))
}

func (st *stream) write(s string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = st.rc.SetWriteDeadline(time.Now().Add(st.patient))
	if _, err := io.WriteString(st.w, s); err != nil {
		return err
	}
	return st.rc.Flush()
}

// beat writes a comment now and then until the returned function is called, which waits for the end
// of it. It calls gone when the reader no longer takes them.
func (st *stream) beat(ctx context.Context, every time.Duration, gone func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if st.write(": alive\n\n") != nil {
					gone()
					return
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
