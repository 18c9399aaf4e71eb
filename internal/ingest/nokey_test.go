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

// TestNoKeyOverHTTP: a door without the key of one tenant says so at each route, with the setting and without the
// secret, changes
// nothing, and serves the other tenants.
func TestNoKeyOverHTTP(t *testing.T) {
	const secret = "the secret of a door that lost it"
	bucket := mem.New()
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(bucket, state.Options{Secrets: statetest.Secrets(secret)})
	})
	want(t, f, 200, nil, "PUT", main+"/files/f", nil, "1")
	want(t, f, 200, nil, "PUT", "/v1/state/state.json", plain, `{"a": 1}`)
	want(t, f, 200, nil, "PUT", main+"/pins/first", plain, `{"generation": 1}`)

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
		{"POST", main + "/restore", plain, `{"generation": 1}`},
		{"POST", main + "/fork", plain, `{"to": "lab"}`},
		{"POST", main + "/check", plain, `{}`},
		{"POST", main + "/repair", plain, `{}`},
		{"GET", main + "/pins", nil, ""},
		{"PUT", main + "/pins/second", plain, `{"generation": 1}`},
		{"DELETE", main + "/pins/first", nil, ""},
		{"GET", main + "/files", nil, ""},
		{"GET", main + "/files?generation=first", nil, ""},
		{"GET", main + "/files/f", nil, ""},
		{"PUT", main + "/files/f", nil, "2"},
		{"DELETE", main + "/files/f", nil, ""},
		{"POST", main + "/files", map[string]string{"Content-Type": ct}, body},
		{"GET", main + "/archive", nil, ""},
		{"POST", main + "/archive", plain, `{"paths": ["f"]}`},
		{"GET", "/v1/state/state.json", nil, ""},
		{"PUT", "/v1/state/state.json", plain, `{"a": 2}`},
	} {
		resp, got := ask(t, f, c.method, c.path, c.header, strings.NewReader(c.body))
		e := decode[struct{ Code, Hint string }](t, got)
		if resp.StatusCode != http.StatusInternalServerError || e.Code != "no_key" ||
			!strings.Contains(e.Hint, "encryption") {
			t.Errorf("%s %s = %d %s, want no_key", c.method, c.path, resp.StatusCode, got)
		}
		if strings.Contains(string(got), "the secret of") {
			t.Errorf("%s %s shows a secret: %s", c.method, c.path, got)
		}
	}
	for _, call := range bucket.Calls() {
		if call.Op != "get" && call.Op != "list" {
			t.Errorf("the request %+v of a door without the key", call)
		}
	}
	if strings.Contains(f.Log.String(), "the secret of") {
		t.Error("the log shows a secret")
	}
	other := map[string]string{"Authorization": "Bearer " + ingesttest.Other}
	want(t, f, 200, nil, "PUT", main+"/files/f", other, "mine")
	want(t, f, 200, nil, "GET", main+"/files/f", other, "")
}
