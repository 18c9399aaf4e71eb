package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// response is a response without its body.
type response struct {
	StatusCode int
	Header     http.Header
}

// request sends a request with the token of the tenant default, and returns the response and its body. header adds or
// replaces headers; an empty value removes a header.
func request(
	t *testing.T, f *ingesttest.Fleet, method, path string, header map[string]string, body io.Reader,
) (response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	for k, v := range header {
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
		if v == "" {
			req.Header.Del(k)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header}, got
}

func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("decode response = %v, want nil: %s", err, body)
	}
	return v
}

// jsonType is the header of requests with a JSON body.
var jsonType = map[string]string{"Content-Type": "application/json"}

// submit submits a task in JSON, and fails the test if it is refused.
func submit(t *testing.T, f *ingesttest.Fleet, query, body string) schemas.Record {
	t.Helper()
	resp, got := request(t, f, "POST", "/v1/tasks"+query, jsonType, strings.NewReader(body))
	if resp.StatusCode/100 != 2 {
		t.Fatalf("POST /v1/tasks = %d %s, want 2xx", resp.StatusCode, got)
	}
	r := decode[schemas.Record](t, got)
	if want := "/v1/tasks/" + r.TaskID; resp.Header.Get("Location") != want {
		t.Errorf("Location = %q, want %q", resp.Header.Get("Location"), want)
	}
	return r
}

func TestTaskRunsToItsResult(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	r := submit(t, f, "?wait=20s",
		`{"code":"print 42","session":"s-1","workspace":"lab","priority":"low","labels":{"a":"b"}}`)
	if r.Status != schemas.Succeeded || r.Result == nil || r.Result.Output != "42\n" {
		t.Fatalf("record = %+v, want succeeded with the output 42", r)
	}
	if r.Session != "s-1" || r.Workspace != "lab" || r.Priority != "low" || r.Tenant != "default" ||
		r.Source != "codefleet/http" {
		t.Errorf("record = %+v, want the envelope of the request", r)
	}
	resp, got := request(t, f, "GET", "/v1/tasks/"+r.TaskID, nil, nil)
	if again := decode[schemas.Record](t, got); resp.StatusCode != 200 || again.Result.Output != "42\n" {
		t.Errorf("GET = %d %s, want 200 with the output 42", resp.StatusCode, got)
	}
	if err := schemas.Validate(schemas.RecordV1, got); err != nil {
		t.Errorf("Validate(record) = %v, want nil", err)
	}
}

func TestSubmissionIsIdempotent(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	header := map[string]string{"Content-Type": "application/json", "Idempotency-Key": `"k-1"`}
	_, first := request(t, f, "POST", "/v1/tasks", header, strings.NewReader(`{"code":"print 1"}`))
	_, second := request(t, f, "POST", "/v1/tasks", header, strings.NewReader(`{ "code": "print 1" }`))
	third := submit(t, f, "", `{"code":"print 1","idempotencykey":"k-1"}`)
	fourth := submit(t, f, "", `{"code":"print 1"}`)
	a, b := decode[schemas.Record](t, first), decode[schemas.Record](t, second)
	if a.TaskID != b.TaskID || a.TaskID != third.TaskID || a.TaskID == fourth.TaskID {
		t.Errorf("ids = %s, %s, %s, %s; want the first three equal and the last different",
			a.TaskID, b.TaskID, third.TaskID, fourth.TaskID)
	}
	resp, got := request(t, f, "POST", "/v1/tasks", header, strings.NewReader(`{"code":"print 2"}`))
	if e := decode[map[string]string](t, got); resp.StatusCode != 409 || e["code"] != "other_data" {
		t.Errorf("other content with the same key = %d %s, want 409 other_data", resp.StatusCode, got)
	}
}

const event = `{"specversion":"1.0","type":"codefleet.task.v1","source":"/test","id":"%s","data":%s}`

func TestEventsInThreeModes(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	binary := map[string]string{
		"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Type": "codefleet.task.v1",
		"Ce-Source": "/test", "Ce-Id": "caf%C3%A9", "Ce-Session": "s-1",
	}
	resp, got := request(t, f, "POST", "/v1/events?wait=20s", binary, strings.NewReader(`{"code":"print binary"}`))
	r := decode[schemas.Record](t, got)
	if resp.StatusCode != 200 || r.Result == nil || r.Result.Output != "binary\n" || r.EventID != "café" ||
		r.Session != "s-1" {
		t.Errorf("binary = %d %s, want 200 with the output and the attributes", resp.StatusCode, got)
	}
	structured := map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}
	resp, got = request(t, f, "POST", "/v1/events?wait=20s", structured,
		strings.NewReader(fmt.Sprintf(event, "2", `{"code":"print structured"}`)))
	if r := decode[schemas.Record](t, got); resp.StatusCode != 200 || r.Result == nil ||
		r.Result.Output != "structured\n" {
		t.Errorf("structured = %d %s, want 200 with the output", resp.StatusCode, got)
	}
	batch := map[string]string{"Content-Type": "application/cloudevents-batch+json; charset=UTF-8"}
	body := fmt.Sprintf("["+event+","+event+"]", "3", `{"code":"print a"}`, "4", `{"code":"print b"}`)
	resp, got = request(t, f, "POST", "/v1/events", batch, strings.NewReader(body))
	items := decode[[]struct{ Status int }](t, got)
	if resp.StatusCode != 202 || len(items) != 2 || items[0].Status != 202 || items[1].Status != 202 {
		t.Errorf("batch = %d %s, want 202 with two accepted items", resp.StatusCode, got)
	}
}

func TestBatchHasOneItemForEachEvent(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Limits.Batch = 4 })
	batch := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	good := fmt.Sprintf(event, "1", `{"code":"print a"}`)
	bad := fmt.Sprintf(event, "2", `{"code":"print b","limits":{"timeout_s":-1}}`)
	resp, got := request(t, f, "POST", "/v1/events", batch, strings.NewReader("["+good+`,{"id":1},`+bad+`,7]`))
	items := decode[[]struct {
		Status int
		Record *schemas.Record
		Error  *struct{ Code, Path string }
	}](t, got)
	var outcomes []string
	for _, i := range items {
		if i.Error != nil {
			outcomes = append(outcomes, fmt.Sprint(i.Status, " ", i.Error.Code, " ", i.Error.Path))
		} else {
			outcomes = append(outcomes, fmt.Sprint(i.Status, " ", i.Record.Status))
		}
	}
	want := []string{"202 queued", "400 bad_event /specversion", "400 bad_data /data/limits/timeout_s", "400 bad_json "}
	if diff := cmp.Diff(want, outcomes); resp.StatusCode != 207 || diff != "" {
		t.Errorf("batch = %d (-want +got):\n%s", resp.StatusCode, diff)
	}
	five := "[" + strings.TrimSuffix(strings.Repeat(good+",", 5), ",") + "]"
	if resp, _ := request(t, f, "POST", "/v1/events", batch, strings.NewReader(five)); resp.StatusCode != 413 {
		t.Errorf("a batch of five events with a limit of four = %d, want 413", resp.StatusCode)
	}
	if resp, got := request(t, f, "POST", "/v1/events", batch, strings.NewReader("[]")); resp.StatusCode != 202 ||
		string(got) != "[]\n" {
		t.Errorf("empty batch = %d %s, want 202 []", resp.StatusCode, got)
	}
}

func TestLargeTasks(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	large := func(n int) string {
		return `{"code":"print 1","files":[{"name":"a","text":"` + strings.Repeat("x", n) + `"}]}`
	}
	if r := submit(t, f, "?wait=20s", large(2<<20)); r.Status != schemas.Succeeded {
		t.Errorf("2 MiB over HTTP = %s, want succeeded", r.Status)
	}
	html := strings.ReplaceAll(large(8<<20), "xx", "<<") // an encoder that escapes it makes it six times as large
	if resp, got := request(t, f, "POST", "/v1/tasks", jsonType, strings.NewReader(html)); resp.StatusCode != 202 {
		t.Errorf("8 MiB of HTML = %d %s, want 202", resp.StatusCode, got)
	}
	resp, got := request(t, f, "POST", "/v1/tasks", jsonType, strings.NewReader(large(40<<20)))
	if e := decode[map[string]string](t, got); resp.StatusCode != 413 || e["code"] != "too_large" {
		t.Errorf("40 MiB = %d %s, want 413 too_large", resp.StatusCode, got)
	}
	chunked := io.MultiReader(strings.NewReader(large(40 << 20))) // its length is unknown
	if resp, _ := request(t, f, "POST", "/v1/tasks", jsonType, chunked); resp.StatusCode != 413 {
		t.Errorf("40 MiB of unknown length = %d, want 413", resp.StatusCode)
	}
}

func TestCancel(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	r := submit(t, f, "", `{"code":"block"}`)
	resp, got := request(t, f, "DELETE", "/v1/tasks/"+r.TaskID, nil, nil)
	if c := decode[schemas.Record](t, got); resp.StatusCode != 200 || c.Status != schemas.Cancelled {
		t.Errorf("cancel of a queued task = %d %s, want 200 and cancelled", resp.StatusCode, got)
	}
}

func TestList(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	_, got := request(t, f, "GET", "/v1/tasks", nil, nil)
	if string(got) != "[]\n" {
		t.Errorf("list without tasks = %s, want []", got)
	}
	a, b := submit(t, f, "", `{"code":"print a"}`), submit(t, f, "", `{"code":"print b"}`)
	if _, got := request(t, f, "GET", "/v1/tasks?limit=1", nil, nil); len(decode[[]schemas.Record](t, got)) != 1 ||
		!strings.Contains(string(got), b.TaskID) {
		t.Errorf("list?limit=1 = %s, want only the later task %s", got, b.TaskID)
	}
	request(t, f, "DELETE", "/v1/tasks/"+a.TaskID, nil, nil)
	for query, want := range map[string][]string{
		"": {b.TaskID, a.TaskID}, "?status=queued": {b.TaskID}, "?status=running,cancelled": {a.TaskID},
		"?status=queued&status=cancelled": {b.TaskID, a.TaskID},
	} {
		resp, got := request(t, f, "GET", "/v1/tasks"+query, nil, nil)
		var ids []string
		for _, r := range decode[[]schemas.Record](t, got) {
			ids = append(ids, r.TaskID)
		}
		if diff := cmp.Diff(want, ids); resp.StatusCode != 200 || diff != "" {
			t.Errorf("list%s = %d (-want +got):\n%s", query, resp.StatusCode, diff)
		}
	}
}

func TestArtifacts(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	r := submit(t, f, "?wait=20s", `{"code":"files"}`)
	base := "/v1/tasks/" + r.TaskID + "/artifacts/"
	resp, got := request(t, f, "GET", base+"out/a.csv", nil, nil)
	if resp.StatusCode != 200 || string(got) != "1,2\n" {
		t.Errorf("artifact = %d %q, want 200 and 1,2", resp.StatusCode, got)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=a.csv",
		"X-Content-Type-Options":  "nosniff",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Content-Length": "4",
	} {
		if resp.Header.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, resp.Header.Get(name), want)
		}
	}
	for _, path := range []string{
		"gone.txt", "none", "out", "", "../../../etc/passwd", "%2e%2e/%2e%2e/x", "out%2fa.csv%00",
	} {
		if resp, got := request(t, f, "GET", base+path, nil, nil); resp.StatusCode != 404 {
			t.Errorf("artifact %q = %d %s, want 404", path, resp.StatusCode, got)
		}
	}
}

func TestIncompleteArtifactIsAborted(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	r := submit(t, f, "?wait=20s", `{"code":"files"}`)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", f.URL+"/v1/tasks/"+r.TaskID+"/artifacts/short.html", nil)
	req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
		if ct := resp.Header.Get("Content-Type"); ct != "application/octet-stream" || resp.Header.Get("X-Evil") != "" {
			t.Errorf("Content-Type = %q, X-Evil = %q, want application/octet-stream and no X-Evil",
				ct, resp.Header.Get("X-Evil"))
		}
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("read of an incomplete artifact = nil, want an error")
	}
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	r := submit(t, f, "", `{"code":"print secret"}`)
	other := map[string]string{"Authorization": "Bearer " + ingesttest.Other}
	for _, req := range [][2]string{
		{"GET", ""},
		{"GET", "?wait=1ms"},
		{"DELETE", ""},
		{"GET", "/events"},
		{"GET", "/artifacts/out/a.csv"},
		{"POST", "/redrive"},
	} {
		foreign, body := request(t, f, req[0], "/v1/tasks/"+r.TaskID+req[1], other, nil)
		unknown, want := request(t, f, req[0], "/v1/tasks/aaaaaaaaaaaaaaaaaaaaaaaaaa"+req[1], other, nil)
		if foreign.StatusCode != 404 || unknown.StatusCode != 404 || !bytes.Equal(body, want) {
			t.Errorf("%s %s: another tenant's task = %d %s, an unknown task = %d %s; want the same 404",
				req[0], req[1], foreign.StatusCode, body, unknown.StatusCode, want)
		}
	}
	if _, got := request(t, f, "GET", "/v1/tasks", other, nil); string(got) != "[]\n" {
		t.Errorf("list of another tenant = %s, want []", got)
	}
	_, got := request(t, f, "GET", "/v1/tasks/"+r.TaskID, nil, nil)
	if decode[schemas.Record](t, got).Status != schemas.Queued {
		t.Errorf("GET of the task = %s, want queued", got)
	}
}

func TestFleetDeadLettersAndSchemas(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	submit(t, f, "?wait=20s", `{"code":"print 1"}`)
	operator := map[string]string{"Authorization": "Bearer " + ingesttest.Operator}
	resp, got := request(t, f, "GET", "/v1/fleet", operator, nil)
	fleet := decode[struct {
		Workers []schemas.Worker
		Backlog []schemas.Backlog
	}](t, got)
	if resp.StatusCode != 200 || len(fleet.Workers) != 1 || fleet.Workers[0].Name != "test-worker" ||
		fleet.Backlog == nil {
		t.Errorf("fleet = %d %s, want 200 with test-worker and a backlog", resp.StatusCode, got)
	}
	resp, got = request(t, f, "GET", "/v1/fleet/backlog?pool=idle&within=90s", operator, nil)
	d := decode[schemas.Demand](t, got)
	if resp.StatusCode != 200 || d.Pool != "idle" || d.WithinS != 90 || d.Slots != 0 {
		t.Errorf("backlog = %d %s, want 200 with zeros for the pool idle", resp.StatusCode, got)
	}
	for _, query := range []string{"pool=A%20B", "within=x", "within=25h"} {
		if resp, got := request(t, f, "GET", "/v1/fleet/backlog?"+query, operator, nil); resp.StatusCode != 400 {
			t.Errorf("backlog?%s = %d %s, want 400", query, resp.StatusCode, got)
		}
	}
	if resp, got := request(t, f, "GET", "/v1/dead", nil, nil); resp.StatusCode != 200 || string(got) != "[]\n" {
		t.Errorf("dead = %d %s, want []", resp.StatusCode, got)
	}
	resp, got = request(t, f, "GET", "/v1/schemas/task.v1.json", map[string]string{"Authorization": ""}, nil)
	want, _ := schemas.Text(schemas.TaskV1)
	if resp.StatusCode != 200 || !bytes.Equal(got, want) ||
		resp.Header.Get("Content-Type") != "application/schema+json" {
		t.Errorf("schema = %d %s, want 200 and the file", resp.StatusCode, got)
	}
}
