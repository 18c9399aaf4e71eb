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

// maxEvent bounds an event of a stream: a record with its result and output fits.
const maxEvent = 64 << 20

// errEnded stops the reading of a stream whose task has ended.
var errEnded = errors.New("ended")

// watch follows the event stream of a task, over as many connections as it takes.
func (d *httpDoor) watch(ctx context.Context, id string, after uint64, fn func(Event) error) (Record, error) {
	w := watcher{door: d, id: id, after: after, fn: fn}
	for {
		before := w.after
		_, err := retry(ctx, d.retryFor, func() (struct{}, error) {
			err := w.stream(ctx)
			if _, final := errors.AsType[*backoff.PermanentError](err); !final && w.after != before {
				return struct{}{}, nil // it moved on: begin the count of failures again
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

// watcher is one watch of one task.
type watcher struct {
	door   *httpDoor
	id     string
	after  uint64 // the last event that fn has seen
	fn     func(Event) error
	record Record // the final one, once the stream has brought it
}

// stream reads one connection's worth of events. It returns errEnded (permanently) when the task has
// ended, a permanent error when fn returns one, and any other error when the connection broke.
func (w *watcher) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := http.Header{"Accept": {"text/event-stream"}}
	if w.after > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(w.after, 10))
	}
	resp, err := w.door.send(ctx, call{path: []string{"v1", "tasks", w.id, "events"}, header: header})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	quiet := time.AfterFunc(silence, func() { cancel(errors.New("the stream fell silent")) })
	defer quiet.Stop()
	for e, err := range sse.Read(&patient{resp.Body, quiet}, maxEvent) {
		if err == nil {
			err = w.dispatch(e)
		}
		if err != nil {
			return fmt.Errorf("watch task %s: %w", w.id, err)
		}
	}
	return fmt.Errorf("watch task %s: %w", w.id, io.EOF)
}

// dispatch hands one event on and remembers its place.
func (w *watcher) dispatch(m sse.Event) error {
	switch m.Type {
	case "record":
		if err := json.Unmarshal(m.Data, &w.record); err != nil {
			return fmt.Errorf("final record: %w", err)
		}
		return backoff.Permanent(errEnded)
	case "progress":
	default:
		return nil // of a newer fleet
	}
	seq, err := strconv.ParseUint(m.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("id of an event: %w", err)
	}
	if seq <= w.after {
		return nil // seen before a connection broke
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

// patient puts off a timer with every byte that arrives.
type patient struct {
	io.Reader
	timer *time.Timer
}

func (p *patient) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.timer.Reset(silence)
	}
	return n, err
}
