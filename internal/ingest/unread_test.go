package ingest_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// withStores starts a fleet whose routes all have what they need.
func withStores(t *testing.T) *ingesttest.Fleet {
	t.Helper()
	return ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Workspaces = state.New(mem.New(), state.Options{})
		o.Mounted.Page = noPage{}
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
	})
}

// TestUnreadIsRefused sends to every route that changes something what it would not read.
func TestUnreadIsRefused(t *testing.T) {
	f := withStores(t)
	_, doc := readDocument(t)
	routes := 0
	for path, item := range doc.Paths {
		for method, o := range item {
			method = strings.ToUpper(method)
			if !strings.HasPrefix(path, "/v1/") || method == "GET" || method == "OPTIONS" || path == "/v1/events" {
				continue
			}
			routes++
			url := strings.NewReplacer("{id}", unknownID, "{run}", unknownID, "{file}", "a.json", "{", "", "}", "").
				Replace(path)
			token := ingesttest.Token
			if len(o.Security) > 0 && len(o.Security[0]["token"]) > 0 && o.Security[0]["token"][0] == "operator" {
				token = ingesttest.Operator
			}
			try := func(name, value, query, body string) (int, string) {
				header := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}}
				if name != "" {
					header.Set(name, value)
				}
				return send(t, method, f.URL+url+query, header, body)
			}
			want := func(what string, status int, code string, codes ...string) {
				for _, c := range codes {
					if status == 400 && code == c {
						return
					}
				}
				t.Errorf("%s %s with %s = %d %s, want 400 %v", method, path, what, status, code, codes)
			}
			status, code := try("", "", "?x=1", "")
			want("an unknown parameter", status, code, "bad_parameter")
			status, code = try("If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT", "", "")
			want("If-Unmodified-Since", status, code, "bad_parameter")
			status, code = try("Content-Range", "bytes 0-1/2", "", "")
			want("Content-Range", status, code, "bad_parameter")
			takes := map[string]bool{}
			for _, p := range o.Parameters {
				takes[p.Name] = true
				if p.In == "query" {
					status, code = try("", "", "?"+p.Name+"=1&"+p.Name+"=1", "")
					want(p.Name+" twice", status, code, "bad_parameter")
				}
				if p.In == "header" {
					status, code = try(p.Name, "", "", "")
					want("an empty "+p.Name, status, code, "bad_parameter")
				}
			}
			if !takes["If-Match"] {
				status, code = try("If-Match", `"a"`, "", "")
				want("If-Match", status, code, "bad_parameter")
			}
			_, isJSON := o.RequestBody.Content["application/json"]
			switch {
			case len(o.RequestBody.Content) == 0:
				status, code = try("", "", "", `{"cause":"x"}`)
				want("a body", status, code, "bad_body")
			case isJSON:
				if o.OperationID != "saveCheckpoint" { // it looks for the session first
					status, code = try("", "", "", `null`)
					want("the body null", status, code, "bad_json", "bad_state")
				}
				status, code = try("", "", "", `{"a":1,"a":2}`)
				want("a member twice", status, code, "bad_json", "bad_state")
			}
		}
	}
	if routes < 40 {
		t.Errorf("%d routes change something, want at least 40: the test may not find them", routes)
	}
}

// TestReadsRefuseTwoValues checks that a parameter of a read has one value, unless it is a list.
func TestReadsRefuseTwoValues(t *testing.T) {
	f := withStores(t)
	for path, want := range map[string]int{
		"/v1/tasks?limit=1&limit=2": 400, "/v1/dead?cause=a&cause=b": 400,
		"/v1/tasks?status=failed&status=timeout": 200, "/v1/tasks?other=1&other=2": 200,
	} {
		if resp, got := request(t, f, "GET", path, nil, nil); resp.StatusCode != want {
			t.Errorf("GET %s = %d %s, want %d", path, resp.StatusCode, got, want)
		}
	}
}

// TestRepeatedHeaderIsRefused checks that of two idempotency keys none is used.
func TestRepeatedHeaderIsRefused(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	header := http.Header{
		"Content-Type": {"application/json"}, "Authorization": {"Bearer " + ingesttest.Token},
		"Idempotency-Key": {"a", "b"},
	}
	if status, code := send(t, "POST", f.URL+"/v1/tasks", header, `{"code":"1"}`); code != "bad_parameter" {
		t.Errorf("POST /v1/tasks with two keys = %d %s, want 400 bad_parameter", status, code)
	}
}

// send returns the status and the error code of a response.
func send(t *testing.T, method, url string, header http.Header, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, decode[struct{ Code string }](t, got).Code
}
