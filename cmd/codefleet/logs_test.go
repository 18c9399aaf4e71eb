package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
)

// TestLogsOfAWorkerAhead checks that the output of a running task is printed also if the clock of its worker is ahead
// of this host's.
func TestLogsOfAWorkerAhead(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, text := range []string{"first\n", "second\n"} {
			data, _ := json.Marshal(client.Progress{
				TaskID: "task", Time: time.Now().Add(2 * time.Minute), Stream: "stdout", Text: text,
			})
			fmt.Fprintf(w, "id: %d\nevent: progress\ndata: %s\n\n", i+1, data)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := client.New(t.Context(), client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var stdout bytes.Buffer
	err = (&app{output: "text", stdout: &stdout}).logsSoFar(t.Context(), c, client.Record{TaskID: "task"})
	if want := "first\nsecond\n"; err != nil || stdout.String() != want {
		t.Errorf("logs = %v and printed %q, want %q", err, &stdout, want)
	}
}
