package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/codefleet/codefleet/internal/sse"
)

// maxEvent limits the size of an event, in bytes. A record with its result and output must fit.
const maxEvent = 64 << 20

const (
	// minStream is how long a connection without events must last so that its loss begins a new series of retries.
	minStream = time.Second
	// maxSilent is how many connections in a row may begin a new series of retries although they brought no data.
	maxSilent = 2
)

// errEnded ends a stream when the task has ended.
var errEnded = errors.New("ended")

// watch reads the event stream of a task, over as many connections as necessary.
func (d *httpConn) watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	w := watcher{conn: d, id: id, after: after, fn: fn}
	for {
		before := w.after
		_, err := retry(ctx, d.retryFor, func() (struct{}, error) {
			err := w.stream(ctx)
			_, final := errors.AsType[*backoff.PermanentError](err)
			if !final && (w.startsNewSeries() || w.after != before) {
				return struct{}{}, nil // the fleet was there: begin a new series of retries
			}
			return struct{}{}, err
		})
		if errors.Is(err, errEnded) {
			return w.record, nil
		}
		if err != nil {
			return Record{TaskID: id}, err
		}
	}
}

// watcher watches one task.
type watcher struct {
	conn   *httpConn
	id     string
	after  uint64 // sequence number of the last event that fn has processed
	fn     func(Event) error
	record Record // the final record, once it has been received

	began  time.Time       // when the fleet accepted the request of the latest connection; zero if it did not
	data   *activityReader // of that connection
	silent int             // how many latest connections in a row lasted, but brought no data
}

// startsNewSeries reports whether the loss of the latest connection begins a new series of retries: it lasted at least
// minStream, and at most maxSilent such connections in a row brought no data. It counts them, so it is called once for
// each connection.
func (w *watcher) startsNewSeries() bool {
	if w.began.IsZero() || time.Since(w.began) < minStream {
		return false
	}
	if w.silent++; w.data.arrived {
		w.silent = 0
	}
	return w.silent <= maxSilent
}

// stream reads the events of one connection until an error. The error is permanent if the task has ended (errEnded), if
// fn returned it, if an event is too long, or if the fleet refused the request. After other errors, such as a lost
// connection, another call continues the stream.
func (w *watcher) stream(ctx context.Context) error {
	w.began = time.Time{}
	header := http.Header{"Accept": {"text/event-stream"}}
	if w.after > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(w.after, 10))
	}
	resp, err := w.conn.openOnce(ctx, httpRequest{path: []string{"v1", "tasks", w.id, "events"}, header: header})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	w.began = time.Now()
	w.data = &activityReader{Reader: resp.Body}
	for e, err := range sse.Read(w.data, maxEvent) {
		if err == nil {
			err = w.dispatch(e)
		}
		if errors.Is(err, sse.ErrTooLong) {
			err = backoff.Permanent(err)
		}
		if err != nil {
			return fmt.Errorf("watch task %s: %w", w.id, err)
		}
	}
	return fmt.Errorf("watch task %s: %w", w.id, io.EOF)
}

// dispatch passes an event to fn and remembers its sequence number. For the final record it returns errEnded.
func (w *watcher) dispatch(m sse.Event) error {
	switch m.Type {
	case "record":
		if err := json.Unmarshal(m.Data, &w.record); err != nil {
			return fmt.Errorf("final record: %w", err)
		}
		return backoff.Permanent(errEnded)
	case "progress":
	default:
		return nil // a newer fleet may send other types of events
	}
	seq, err := strconv.ParseUint(m.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("event id: %w", err)
	}
	if seq <= w.after {
		return nil // fn has already received it
	}
	e := Event{Seq: seq}
	if err := json.Unmarshal(m.Data, &e.Progress); err != nil {
		return fmt.Errorf("event %d: %w", seq, err)
	}
	if err := w.fn(e); err != nil {
		return backoff.Permanent(err)
	}
	w.after = seq
	return nil
}

// activityReader notes whether data has arrived.
type activityReader struct {
	io.Reader
	arrived bool
}

func (r *activityReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.arrived = r.arrived || n > 0
	return n, err
}
