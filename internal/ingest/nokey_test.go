package ingest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// TestNoKeyOverHTTP checks a server that lacks the key of one tenant. Each route responds with an error that names the
// setting but no secret, changes nothing, and works for other tenants.
func TestNoKeyOverHTTP(t *testing.T) {
	const secret = "the secret of another server"
	bucket := mem.New()
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(bucket, state.Options{Secrets: statetest.Secrets(secret)})
	})
	wantStatus(t, f, 200, nil, "PUT", main+"/files/f", nil, "1")
	wantStatus(t, f, 200, nil, "PUT", "/v1/state/state.json", jsonType, `{"a": 1}`)
	wantStatus(t, f, 200, nil, "PUT", main+"/pins/first", jsonType, `{"generation": 1}`)

	f = ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(bucket, state.Options{Secrets: func(tenant string) state.Secrets {
			return state.Secrets{Current: []byte("the secret of " + tenant)}
		}})
	})
	bucket.Calls()
	body, ct := form(t, [][2]string{{"g", "1"}}, "")
	for _, c := range []struct {
		method, path string
		header       map[string]string
		body         string
	}{
		{"GET", "/v1/workspaces", nil, ""},
		{"GET", main, nil, ""},
		{"DELETE", main, nil, ""},
		{"GET", main + "/log", nil, ""},
		{"GET", main + "/diff?from=1", nil, ""},
		{"POST", main + "/restore", jsonType, `{"generation": 1}`},
		{"POST", main + "/fork", jsonType, `{"to": "lab"}`},
		{"POST", main + "/check", jsonType, `{}`},
		{"POST", main + "/repair", jsonType, `{}`},
		{"GET", main + "/pins", nil, ""},
		{"PUT", main + "/pins/second", jsonType, `{"generation": 1}`},
		{"DELETE", main + "/pins/first", nil, ""},
		{"GET", main + "/files", nil, ""},
		{"GET", main + "/files?generation=first", nil, ""},
		{"GET", main + "/files/f", nil, ""},
		{"PUT", main + "/files/f", nil, "2"},
		{"DELETE", main + "/files/f", nil, ""},
		{"POST", main + "/files", map[string]string{"Content-Type": ct}, body},
		{"GET", main + "/archive", nil, ""},
		{"POST", main + "/archive", jsonType, `{"paths": ["f"]}`},
		{"GET", "/v1/state/state.json", nil, ""},
		{"PUT", "/v1/state/state.json", jsonType, `{"a": 2}`},
	} {
		resp, got := request(t, f, c.method, c.path, c.header, strings.NewReader(c.body))
		e := decode[struct{ Code, Hint string }](t, got)
		if resp.StatusCode != http.StatusInternalServerError || e.Code != "no_key" ||
			!strings.Contains(e.Hint, "encryption") {
			t.Errorf("%s %s = %d %s, want no_key", c.method, c.path, resp.StatusCode, got)
		}
		if strings.Contains(string(got), "the secret of") {
			t.Errorf("%s %s: the response has a secret, want none: %s", c.method, c.path, got)
		}
	}
	for _, call := range bucket.Calls() {
		if call.Op != "get" && call.Op != "list" {
			t.Errorf("the server sent %+v to the object store, want only reads", call)
		}
	}
	if strings.Contains(f.Log.String(), "the secret of") {
		t.Error("the log has a secret, want none")
	}
	other := map[string]string{"Authorization": "Bearer " + ingesttest.Other}
	wantStatus(t, f, 200, nil, "PUT", main+"/files/f", other, "mine")
	wantStatus(t, f, 200, nil, "GET", main+"/files/f", other, "")
}
