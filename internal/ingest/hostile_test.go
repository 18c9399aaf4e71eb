package ingest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// A token that may read changes nothing, whatever door it tries.
func TestReadersChangeNothing(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	want(t, f, 200, nil, "PUT", main+"/files/f", nil, "1")
	want(t, f, 200, nil, "PUT", main+"/pins/keep", plain, `{}`)
	reader := map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly, "Content-Type": "application/json"}
	for _, c := range [][2]string{
		{"PUT", main + "/files/f"},
		{"PUT", main + "/files/g"},
		{"DELETE", main + "/files/f"},
		{"POST", main + "/files"},
		{"POST", main + "/restore"},
		{"POST", main + "/fork"},
		{"PUT", main + "/pins/new"},
		{"DELETE", main + "/pins/keep"},
		{"DELETE", main},
		{"PUT", "/v1/state"},
		{"PUT", "/v1/state/state.json"},
		{"POST", "/v1/tasks"},
		{"DELETE", "/v1/tasks/x"},
	} {
		want(t, f, 403, nil, c[0], c[1], reader, "{}")
	}
	var info history.Info
	var pins []history.Pinned
	want(t, f, 200, &info, "GET", main, reader, "")
	want(t, f, 200, &pins, "GET", main+"/pins", reader, "")
	if info.Generation != 1 || len(pins) != 1 {
		t.Errorf("after that: %+v, pins %v", info, pins)
	}
}

// Many small ranges must not read the file's large parts again and again.
func TestManyRanges(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	const size = 9 << 20
	want(t, f, 200, nil, "PUT", main+"/files/large", nil, statetest.Random(1, size))
	ranges := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("0-0,%d-%d,", size-1, size-1), 100), ",")
	f.Objects.Calls()
	resp, _ := ask(t, f, "GET", main+"/files/large", map[string]string{"Range": "bytes=" + ranges}, nil)
	if n := len(f.Objects.Calls()); n > 20 {
		t.Errorf("%d requests to the store, answer %d", n, resp.StatusCode)
	}
	resp, body := ask(t, f, "GET", main+"/files/large",
		map[string]string{"Range": fmt.Sprintf("bytes=0-0,%d-%d", size-1, size-1)}, nil)
	if resp.StatusCode != 206 || len(body) > 1000 {
		t.Errorf("two ranges = %d, %d bytes", resp.StatusCode, len(body))
	}
}

// Uploads of one tenant that never end leave places to the others.
func TestSlowUploadsOfOneTenant(t *testing.T) {
	f := ingesttest.Start(t, 0,
		func(o *ingest.Options, _ *jobs.Options) { o.Limits.QueueTime = 100 * time.Millisecond })
	for i := range 16 {
		body, w := io.Pipe()
		t.Cleanup(func() { _ = w.CloseWithError(io.ErrUnexpectedEOF) })
		req, err := http.NewRequestWithContext(t.Context(), "PUT", fmt.Sprintf("%s%s/files/f%d", f.URL, main, i), body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}()
		go func() { _, _ = io.WriteString(w, "x") }()
	}
	for end := time.Now().Add(20 * time.Second); ; { // until there is no place left for this tenant
		if resp, _ := ask(t, f, "PUT", main+"/files/mine", nil,
			strings.NewReader("1")); resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the places of a tenant never ran out")
		}
	}
	want(t, f, 200, nil, "PUT", main+"/files/f", map[string]string{"Authorization": "Bearer " + ingesttest.Other}, "1")
}

func TestLongMessage(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	want(t, f, 400, nil, "PUT", main+"/files/f?message="+strings.Repeat("m", 1001), nil, "1")
}

// What a tenant calls its files is the tenant's: the log says which address was asked for, up to there.
func TestNamesOfFilesAreNotLogged(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	want(t, f, 200, nil, "PUT", main+"/files/patients/jane-doe.pdf", nil, "1")
	want(t, f, 404, nil, "GET", main+"/files/patients/jane-doe.txt", nil, "")
	want(t, f, 404, nil, "GET", "/v1/state/state/jane-doe.json", nil, "")
	want(t, f, 404, nil, "GET", "/v1/tasks/t/artifacts/jane-doe.pdf", nil, "")
	if text := f.Log.String(); strings.Contains(text, "jane-doe") ||
		!strings.Contains(text, `"path":"/v1/workspaces/main/files/…"`) {
		t.Errorf("log:\n%s", text)
	}
}
