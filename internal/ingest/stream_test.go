package ingest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

type message struct{ id, event, data string }

// follow opens the event stream of a task. If last is not empty, the stream begins after the event with that id.
func follow(t *testing.T, f *ingesttest.Fleet, id, last string) (response, *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", f.URL+"/v1/tasks/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return response{resp.StatusCode, resp.Header}, bufio.NewScanner(resp.Body)
}

// next returns the next message, or false at the end of the stream. A comment is returned as a message.
func next(lines *bufio.Scanner) (message, bool) {
	var m message
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case "":
			if lines.Text() == "" {
				return m, true
			}
			m.event = "comment"
		}
	}
	return m, false
}

func TestEventStream(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	r := submit(t, f, "?wait=20s", `{"code":"print hello"}`)
	resp, lines := follow(t, f, r.TaskID, "")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("events = %d %s, want 200 text/event-stream", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	var ids, texts []string
	var final schemas.Record
	for m, ok := next(lines); ok; m, ok = next(lines) {
		switch m.event {
		case "progress":
			var p schemas.Progress
			if err := schemas.Decode(schemas.ProgressV1, []byte(m.data), &p); err != nil {
				t.Errorf("Decode(progress %s) = %v, want nil", m.data, err)
			}
			ids = append(ids, m.id)
			if p.Stream != "" {
				texts = append(texts, p.Text)
			}
		case "record":
			if err := json.Unmarshal([]byte(m.data), &final); err != nil || m.id != "end" {
				t.Errorf("final event has the id %s, decode error %v; want end, nil", m.id, err)
			}
		}
	}
	if diff := cmp.Diff([]string{"hello\n"}, texts); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if final.Status != schemas.Succeeded || final.Result.Output != "hello\n" {
		t.Errorf("final record = %+v, want succeeded with the output hello", final)
	}

	_, lines = follow(t, f, r.TaskID, ids[0]) // resume after the first event
	var again []string
	for m, ok := next(lines); ok; m, ok = next(lines) {
		if m.event == "progress" {
			again = append(again, m.id)
		}
	}
	if diff := cmp.Diff(ids[1:], again); diff != "" {
		t.Errorf("ids of the resumed stream (-want +got):\n%s", diff)
	}
	if resp, _ := follow(t, f, r.TaskID, "end"); resp.StatusCode != http.StatusNoContent {
		t.Errorf("events after the end = %d, want 204", resp.StatusCode)
	}
}

// TestEventStreamThatCannotBegin checks that the response has an error status if the queue does not deliver progress.
func TestEventStreamThatCannotBegin(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	r := submit(t, f, "?wait=20s", `{"code":"print hello"}`)
	user := f.NATS.Fleet()
	nc, err := nats.Connect(f.NATS.URL(), nats.UserInfo(user.User, user.Password))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "LOGS"); err != nil {
		t.Fatal(err)
	}
	if resp, _ := follow(t, f, r.TaskID, ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("events without a stream of progress = %d, want 503", resp.StatusCode)
	}
}

func TestEventStreamIsLiveWithHeartbeats(t *testing.T) {
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) { o.Limits.Heartbeat = 10 * time.Millisecond })
	r := submit(t, f, "", `{"code":"block"}`)
	_, lines := follow(t, f, r.TaskID, "")
	beats, blocking := 0, false
	for beats < 3 || !blocking { // while the task runs
		m, ok := next(lines)
		if !ok {
			t.Fatalf("the stream ended after %d heartbeats, output received: %v; want both", beats, blocking)
		}
		if m.event == "comment" {
			beats++
		}
		blocking = blocking || strings.Contains(m.data, "blocking")
	}
	request(t, f, "DELETE", "/v1/tasks/"+r.TaskID, nil, nil)
	var last message
	for m, ok := next(lines); ok; m, ok = next(lines) {
		if m.event == "record" {
			last = m
		}
	}
	if !strings.Contains(last.data, `"status":"cancelled"`) {
		t.Errorf("last event = %+v, want the cancelled record", last)
	}
}

// TestStreamsEndWithTheirClients checks that the server ends a stream when its client disconnects, and does not log an
// error.
func TestStreamsEndWithTheirClients(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Limits.Heartbeat = 5 * time.Millisecond })
	r := submit(t, f, "", `{"code":"block"}`)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", f.URL+"/v1/tasks/"+r.TaskID+"/events", nil)
		req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		cancel()
		resp.Body.Close()
	}
	closed := make(chan struct{})
	go func() { f.HTTP.Close(); close(closed) }() // waits for every request
	select {
	case <-closed:
	case <-time.After(ingesttest.WaitTimeout):
		t.Error("streams did not end, want them to end with their clients")
	}
	if n := strings.Count(f.Log.String(), `"path":"/v1/tasks/`+r.TaskID+`/events"`); n != 20 {
		t.Errorf("the log has %d streams, want 20", n)
	}
	if strings.Contains(f.Log.String(), "event stream interrupted") {
		t.Error("the disconnection of a client was logged as a failure, want no warning")
	}
}
