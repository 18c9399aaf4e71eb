package ingest_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
)

const (
	structured = "application/cloudevents+json"
	unknownID  = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// TestRefusals checks the responses to invalid requests of all kinds.
func TestRefusals(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	ev := func(extra, data string) string {
		return `{"specversion":"1.0","type":"codefleet.task.v1","source":"/t","id":"1"` + extra + `,"data":` + data +
			`}`
	}
	for _, tt := range []struct {
		name, method, path string
		header             map[string]string
		body               string
		status             int
		code, at           string
	}{
		{"no token", "GET", "/v1/tasks", map[string]string{"Authorization": ""}, "", 401, "unauthorized", ""},
		{
			"wrong token", "GET", "/v1/tasks",
			map[string]string{"Authorization": "Bearer nonsense"},
			"", 401,
			"unauthorized", "",
		},
		{
			"basic", "GET", "/v1/tasks",
			map[string]string{"Authorization": "Basic " + ingesttest.Token},
			"", 401,
			"unauthorized", "",
		},
		{
			"token in the URL", "GET", "/v1/tasks?access_token=" + ingesttest.Token,
			map[string]string{"Authorization": ""},
			"", 401, "unauthorized", "",
		},
		{
			"scope", "POST", "/v1/tasks",
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"{}", 403,
			"forbidden", "",
		},
		{
			"scope to cancel", "DELETE", "/v1/tasks/" + unknownID,
			map[string]string{"Authorization": "Bearer " + ingesttest.ReadOnly},
			"", 403, "forbidden", "",
		},
		{
			"scope of an operator", "GET", "/v1/fleet",
			map[string]string{"Authorization": "Bearer " + ingesttest.Other},
			"", 403, "forbidden", "",
		},
		{
			"operator without a tenant", "GET", "/v1/tasks",
			map[string]string{"Authorization": "Bearer " + ingesttest.Operator},
			"", 403, "forbidden", "",
		},
		{"host", "GET", "/healthz", map[string]string{"Host": "evil.example.org"}, "", 403, "host_refused", ""},
		{
			"host with a port", "GET", "/healthz",
			map[string]string{"Host": "evil.example.org:8787"},
			"", 403,
			"host_refused", "",
		},
		{
			"origin", "GET", "/v1/tasks",
			map[string]string{"Origin": "https://evil.example.org"},
			"", 403,
			"origin_refused", "",
		},
		{"origin null", "POST", "/v1/tasks", map[string]string{"Origin": "null"}, "{}", 403, "origin_refused", ""},

		{"unknown path", "GET", "/v2/tasks", nil, "", 404, "not_found", ""},
		{"unclean path", "GET", "/v1//tasks", nil, "", 404, "not_found", ""},
		{"trailing slash", "GET", "/v1/tasks/", nil, "", 404, "not_found", ""},
		{"method", "PUT", "/v1/tasks", nil, "", 405, "method_not_allowed", ""},
		{"unknown task", "GET", "/v1/tasks/" + unknownID, nil, "", 404, "unknown_task", ""},
		{"unknown task, waiting", "GET", "/v1/tasks/" + unknownID + "?wait=10s", nil, "", 404, "unknown_task", ""},
		{"unknown task, watching", "GET", "/v1/tasks/" + unknownID + "/events", nil, "", 404, "unknown_task", ""},
		{"unknown task, cancelling", "DELETE", "/v1/tasks/" + unknownID, nil, "", 404, "unknown_task", ""},
		{"not an id", "GET", "/v1/tasks/%3E", nil, "", 404, "unknown_task", ""},
		{"not an id, cancelling", "DELETE", "/v1/tasks/a.b.%2a", nil, "", 404, "unknown_task", ""},
		{"unknown schema", "GET", "/v1/schemas/go.mod", nil, "", 404, "unknown_schema", ""},
		{"unknown task, waiting long", "GET", "/v1/tasks/" + unknownID + "?wait=1e9", nil, "", 404, "unknown_task", ""},
		{"wait of no number", "GET", "/v1/tasks/" + unknownID + "?wait=NaN", nil, "", 400, "bad_parameter", "wait"},
		{"wait", "GET", "/v1/tasks/" + unknownID + "?wait=soon", nil, "", 400, "bad_parameter", "wait"},
		{"wait below zero", "POST", "/v1/tasks?wait=-1s", jsonType, "{}", 400, "bad_parameter", "wait"},
		{"limit", "GET", "/v1/tasks?limit=1001", nil, "", 400, "bad_parameter", "limit"},
		{"limit of dead", "GET", "/v1/dead?limit=0", nil, "", 400, "bad_parameter", "limit"},
		{"limit of audit", "GET", "/v1/audit?limit=1001", nil, "", 400, "bad_parameter", "limit"},
		{"task of audit", "GET", "/v1/audit?task=../x", nil, "", 400, "bad_parameter", "task"},
		{"status", "GET", "/v1/tasks?status=done", nil, "", 400, "bad_parameter", "status"},
		{
			"Last-Event-ID", "GET", "/v1/tasks/" + unknownID + "/events",
			map[string]string{"Last-Event-ID": "x"},
			"",
			400, "bad_parameter", "Last-Event-ID",
		},

		{
			"form", "POST", "/v1/tasks",
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
			"a=b",
			415, "bad_media_type", "",
		},
		{"no media type", "POST", "/v1/tasks", nil, "{}", 415, "bad_media_type", ""},
		{
			"compressed", "POST", "/v1/tasks",
			map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"},
			"{}", 415,
			"bad_media_type", "",
		},
		{"task instead of an event", "POST", "/v1/events", jsonType, `{"code":"1"}`, 415, "bad_media_type", ""},
		{"empty", "POST", "/v1/tasks", jsonType, "", 400, "bad_json", ""},
		{"not JSON", "POST", "/v1/tasks", jsonType, `{"code":`, 400, "bad_json", ""},
		{"null", "POST", "/v1/tasks", jsonType, `null`, 400, "bad_json", ""},
		{"no task", "POST", "/v1/tasks", jsonType, `{}`, 400, "bad_data", ""},
		{
			"description and code", "POST", "/v1/tasks", jsonType, `{"code":"1","description":"x"}`, 400, "bad_data",
			"",
		},
		{
			"schema", "POST", "/v1/tasks", jsonType, `{"code":"1","limits":{"memory_mb":"much"}}`, 400, "bad_data",
			"/limits/memory_mb",
		},
		{
			"key of quotes", "POST", "/v1/tasks",
			map[string]string{"Content-Type": "application/json", "Idempotency-Key": `""`},
			`{"code":"1"}`, 400, "bad_event", "/idempotencykey",
		},
		{
			"empty extension", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev(`,"workspace":""`, `{"code":"1"}`), 400, "bad_event", "/workspace",
		},
		{
			"key of quotes for a workflow", "POST", "/v1/workflows/runs",
			map[string]string{"Content-Type": "application/json", "Idempotency-Key": `""`},
			`{}`, 400, "bad_event", "/idempotencykey",
		},
		{
			"key twice for a workflow", "POST", "/v1/workflows/runs/x/rerun",
			map[string]string{"Content-Type": "application/json", "Idempotency-Key": "a"},
			`{"from":"a","idempotencykey":"b"}`, 400, "bad_event", "/idempotencykey",
		},
		{
			"key twice", "POST", "/v1/tasks",
			map[string]string{"Content-Type": "application/json", "Idempotency-Key": "a"},
			`{"code":"1","idempotencykey":"b"}`, 400, "bad_event", "/idempotencykey",
		},
		{"envelope type", "POST", "/v1/tasks", jsonType, `{"code":"1","session":7}`, 400, "bad_event", "/session"},

		{
			"event schema", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev("", `{"code":"1","limits":{"memory_mb":"much"}}`), 400, "bad_data", "/data/limits/memory_mb",
		},
		{
			"missing data", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			`{"specversion":"1.0","type":"codefleet.task.v1","source":"/t","id":"1"}`, 400, "bad_data", "/data",
		},
		{
			"unknown specversion", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			`{"specversion":"2.0"}`, 400, "bad_event", "/specversion",
		},
		{
			"tenant", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev(`,"tenant":"other"`, `{"code":"1"}`), 403, "tenant_mismatch", "/tenant",
		},
		{
			"media type of the data", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev(`,"datacontenttype":"text/json"`, `{"code":"1"}`), 400, "bad_data", "/datacontenttype",
		},
		{
			"long number", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			`{"specversion":"1.0","type":"a.b","source":"/t","id":"1","data":` + strings.Repeat("1", 5000) + "}", 400,
			"bad_data", "/data",
		},
		{
			"reply subject", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev(`,"replyto":"tasks.default.high.other"`, `{"code":"1"}`), 400, "bad_replyto", "/replyto",
		},
		{
			"bad session", "POST", "/v1/events",
			map[string]string{"Content-Type": structured},
			ev(`,"session":"A B"`, `{"code":"1"}`), 400, "bad_name", "/session",
		},
		{
			"tenant of a task", "POST", "/v1/tasks", jsonType, `{"code":"1","tenant":"other"}`, 403,
			"tenant_mismatch", "*",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, got := request(t, f, tt.method, tt.path, tt.header, strings.NewReader(tt.body))
			e := decode[struct{ Code, Message, Path string }](t, got)
			if resp.StatusCode != tt.status || e.Code != tt.code || tt.at != "*" && e.Path != tt.at {
				t.Errorf("%s %s = %d %s; want %d %s at %q", tt.method, tt.path, resp.StatusCode, got, tt.status,
					tt.code, tt.at)
			}
			if e.Message == "" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("response %s of type %q, want a message in JSON", got, resp.Header.Get("Content-Type"))
			}
		})
	}
	if resp, _ := request(t, f, "GET", "/v1/tasks", map[string]string{"Authorization": ""},
		nil); !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("WWW-Authenticate = %q, want Bearer …", resp.Header.Get("WWW-Authenticate"))
	}
	if resp, _ := request(t, f, "PUT", "/v1/tasks", nil, nil); resp.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow = %q, want GET, HEAD, POST", resp.Header.Get("Allow"))
	}
	if _, got := request(t, f, "GET", "/v1/tasks", nil, nil); string(got) != "[]\n" {
		t.Errorf("tasks after refused requests = %s, want []", got)
	}
	for _, secret := range []string{ingesttest.Token, ingesttest.Other, "nonsense"} {
		if strings.Contains(f.Log.String(), secret) {
			t.Errorf("the log contains the token %q, want no token", secret)
		}
	}
}

// TestSelectorsAreChecked checks that a change is refused if what limits it is missing, empty or misspelt.
func TestSelectorsAreChecked(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	approvals := "/v1/tasks/" + unknownID + "/approvals"
	for _, tt := range []struct{ token, method, path, body, want string }{
		{ingesttest.Token, "POST", "/v1/dead/redrive?cause=", "", "bad_parameter"},
		{ingesttest.Token, "POST", "/v1/dead/redrive?code=disk_full", "", "bad_parameter"},
		{ingesttest.Token, "POST", "/v1/dead/redrive?cause=disk_full&cause=", "", "bad_parameter"},
		{ingesttest.Token, "POST", "/v1/dead/redrive?cause=disk_full;", "", "bad_parameter"},
		{ingesttest.Token, "DELETE", "/v1/skills/a?version=", "", "bad_parameter"},
		{ingesttest.Token, "DELETE", "/v1/skills/a?at=2", "", "bad_parameter"},
		{ingesttest.Token, "PUT", "/v1/state/state.json?workspace=", `{}`, "bad_parameter"},
		{ingesttest.Token, "POST", "/v1/tasks?wiat=5s", `{"code":"1"}`, "bad_parameter"},
		{ingesttest.Token, "POST", approvals, `{"call":"","approve":true}`, "bad_data"},
		{ingesttest.Token, "POST", approvals, `{"cal":"x","approve":true}`, "bad_json"},
		{ingesttest.Token, "POST", approvals, `{"call":"x","approve":true} {}`, "bad_json"},
		{
			ingesttest.Token, "POST", "/v1/triggers",
			`{"name":"t","type":"a.b","if":"false","task":{"code":"1"}}`, "bad_json",
		},
		{
			ingesttest.Token, "POST", "/v1/webhooks", `{"name":"w","url":"https://example.org/","tpyes":["a"]}`, "bad_json",
		},
		{ingesttest.Token, "POST", "/v1/sessions/s/resume", `{"id":1}`, "bad_json"},
		{ingesttest.Operator, "PUT", "/v1/limits/default", "", "bad_json"},
		{ingesttest.Operator, "PUT", "/v1/limits/default", `{"max_slots":1}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", "", "bad_data"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"name":"bot"}`, "bad_data"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tennant":"default"}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"default","expires":"2027-01-01T00:00:00Z"}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"default","scopes":[]}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"default","scopes":null}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"default","Scopes":["operator"]}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"scopes":["read"],"scopes":["operator"]}`, "bad_json"},
		{ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"","scopes":["operator"]}`, "bad_json"},
		{
			ingesttest.Operator, "POST", "/v1/tokens", `{"tenant":"default","expires_at":"0001-01-01T00:00:00Z"}`,
			"bad_json",
		},
		{ingesttest.Operator, "PUT", "/v1/limits/default", "null", "bad_json"},
		{ingesttest.Operator, "PUT", "/v1/limits/default", `{"task_rate":""}`, "bad_json"},
		{ingesttest.Token, "POST", "/v1/tasks", `{"code":"1","workspace":""}`, "bad_event"},
		{ingesttest.Token, "POST", "/v1/tasks", `{"code":"1","workspace":null}`, "bad_event"},
		{ingesttest.Token, "POST", "/v1/tasks", `{"code":"1","idempotencykey":""}`, "bad_event"},
		{ingesttest.Token, "POST", "/v1/workflows/runs", `{"workflow":{},"idempotencykey":""}`, "bad_json"},
		{ingesttest.Token, "POST", "/v1/workflows/runs/x/rerun", `{"from":"a","idempotencykey":""}`, "bad_json"},
		{ingesttest.Token, "POST", "/v1/tasks", `{"code":"1","inputs":{"a":1,"a":2}}`, "bad_json"},
		{ingesttest.Token, "POST", "/v1/tasks", `{"code":"1","partitionkey":"\ud800"}`, "bad_json"},
		{ingesttest.Token, "POST", approvals, `{"call":null,"approve":true}`, "bad_json"},
		{ingesttest.Token, "POST", approvals, `null`, "bad_json"},
		{
			ingesttest.Token, "POST", "/v1/webhooks", `{"name":"w","url":"https://example.org/","filter":""}`, "bad_json",
		},
		{ingesttest.Operator, "POST", "/v1/pause", `{"reason":"maintenance"}`, "bad_name"},
		{ingesttest.Operator, "POST", "/v1/pause", `{"target":"pool/"}`, "bad_name"},
		{ingesttest.Operator, "POST", "/v1/resume", "", "bad_name"},
		{ingesttest.Operator, "POST", "/v1/workers//drain", "", "not_found"},
	} {
		header := map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + tt.token}
		resp, got := request(t, f, tt.method, tt.path, header, strings.NewReader(tt.body))
		if e := decode[struct{ Code string }](t, got); e.Code != tt.want {
			t.Errorf("%s %s %s = %d %s, want %s", tt.method, tt.path, tt.body, resp.StatusCode, got, tt.want)
		}
	}
	header := map[string]string{"Content-Type": structured}
	event := `{"specversion":"1.0","type":"codefleet.task.v1","source":"/t","id":"1","partitionkey":"p",` +
		`"data":{"code":"1"}}`
	resp, got := request(t, f, "POST", "/v1/events?from=sender", header, strings.NewReader(event))
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("an event with an extension, and a parameter of its sender = %d %s, want 202", resp.StatusCode, got)
	}
}

func TestAllowedHostsAndOrigins(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) {
		o.Access.Hosts, o.Access.Origins = []string{"fleet.example.org"}, []string{"https://console.example.org"}
	})
	for _, host := range []string{
		"fleet.example.org", "fleet.example.org:443", "localhost:1", "127.0.0.1", "[::1]:8787", "10.0.0.7",
	} {
		resp, got := request(t, f, "GET", "/v1/tasks", map[string]string{"Host": host}, nil)
		if resp.StatusCode != 200 {
			t.Errorf("Host %s = %d %s, want 200", host, resp.StatusCode, got)
		}
	}
	for _, header := range []map[string]string{
		{"Origin": "https://console.example.org"},
		{"Host": "fleet.example.org", "Origin": "https://fleet.example.org"},
	} {
		if resp, got := request(t, f, "GET", "/v1/tasks", header, nil); resp.StatusCode != 200 {
			t.Errorf("%v = %d %s, want 200", header, resp.StatusCode, got)
		}
	}
}

func TestWebHookHandshake(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	resp, _ := request(t, f, "OPTIONS", "/v1/events",
		map[string]string{"WebHook-Request-Origin": "eventemitter.example.com"}, nil)
	if resp.StatusCode != 200 || resp.Header.Get("WebHook-Allowed-Origin") != "eventemitter.example.com" ||
		resp.Header.Get("WebHook-Allowed-Rate") != "*" {
		t.Errorf("OPTIONS = %d %v, want 200 that allows the origin at any rate", resp.StatusCode, resp.Header)
	}
	resp, _ = request(t, f, "OPTIONS", "/v1/events",
		map[string]string{"WebHook-Request-Origin": "evil.example.com", "Authorization": ""}, nil)
	if resp.StatusCode != 401 || resp.Header.Get("WebHook-Allowed-Origin") != "" {
		t.Errorf("OPTIONS without a token = %d %v, want 401", resp.StatusCode, resp.Header)
	}
}

func TestBacklogFull(t *testing.T) {
	f := ingesttest.Start(t, 0, func(_ *ingest.Options, o *jobs.Options) { o.Storage.MaxBacklog = 2 })
	for i := range 2 {
		submit(t, f, "", fmt.Sprintf(`{"code":"print %d"}`, i))
	}
	resp, got := request(t, f, "POST", "/v1/tasks", jsonType, strings.NewReader(`{"code":"print 3"}`))
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if e := decode[map[string]string](t, got); resp.StatusCode != 429 || e["code"] != "backlog_full" || err != nil ||
		after < 1 {
		t.Errorf("the third task = %d %s, Retry-After %q; want 429 backlog_full", resp.StatusCode, got,
			resp.Header.Get("Retry-After"))
	}
}

func TestQueueDoesNotRespond(t *testing.T) {
	f := ingesttest.Start(t, 0,
		func(o *ingest.Options, _ *jobs.Options) { o.Limits.QueueTime = time.Second })
	anonymous := map[string]string{"Authorization": ""}
	if resp, got := request(t, f, "GET", "/readyz", anonymous, nil); resp.StatusCode != 200 {
		t.Errorf("readyz = %d %s, want 200", resp.StatusCode, got)
	}
	r := submit(t, f, "", `{"code":"print 1"}`)
	f.NATS.Close()
	for _, req := range [][3]string{
		{"POST", "/v1/tasks", `{"code":"print 2"}`},
		{"GET", "/v1/tasks", ""},
		{"GET", "/v1/tasks/" + r.TaskID, ""},
		{"DELETE", "/v1/tasks/" + r.TaskID, ""},
		{"GET", "/v1/fleet", ""},
		{"GET", "/v1/dead", ""},
		{"GET", "/readyz", ""},
	} {
		resp, got := request(t, f, req[0], req[1], jsonType, strings.NewReader(req[2]))
		if e := decode[map[string]string](t, got); resp.StatusCode != 503 || e["code"] != "unavailable" ||
			resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s = %d %s, want 503 unavailable with Retry-After", req[0], req[1], resp.StatusCode, got)
		}
	}
	batch := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	start := time.Now()
	events := strings.Repeat(fmt.Sprintf(event, "1", `{"code":"1"}`)+",", 100)
	resp, got := request(t, f, "POST", "/v1/events", batch, strings.NewReader("["+strings.TrimSuffix(events, ",")+"]"))
	if items := decode[[]struct{ Status int }](t, got); resp.StatusCode != 207 || len(items) != 100 ||
		items[99].Status != 503 {
		t.Errorf("batch = %d %s, want 207 and 503 for the last of 100 events", resp.StatusCode, got)
	}
	if elapsed := time.Since(start); elapsed > time.Minute {
		t.Errorf("the batch took %s, want at most a minute: it waits 1s for the queue, for all events", elapsed)
	}
	for _, path := range []string{"/healthz", "/health"} {
		if resp, _ := request(t, f, "GET", path, nil, nil); resp.StatusCode != 200 {
			t.Errorf("%s = %d, want 200", path, resp.StatusCode)
		}
	}
}

// serve starts a second server for the fleet on loopback. stop drains it and returns the error of Serve.
func serve(t *testing.T, f *ingesttest.Fleet, o ingest.Options) (addr string, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Telemetry.Log = slog.New(slog.DiscardHandler)
	s := ingest.New(o)
	s.Join(f.Jobs)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	var result error
	done := false
	stop = func() error {
		cancel()
		if !done {
			result, done = <-ended, true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return ln.Addr().String(), stop
}

// TestSlowBody checks that a body that stalls is refused, whether or not the request takes one.
func TestSlowBody(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	addr, _ := serve(t, f, ingest.Options{Limits: ingest.Limits{BodyTime: time.Second}})
	want := map[string]string{
		"POST /v1/tasks HTTP/1.1\r\nHost: localhost":                             "408 body_timeout",
		"DELETE /v1/webhooks/x HTTP/1.1\r\nHost: localhost":                      "408 body_timeout",
		"POST /v1/tasks/x/cancel HTTP/1.1\r\nHost: localhost":                    "404 not_found",
		"PATCH /v1/tasks HTTP/1.1\r\nHost: localhost":                            "405 method_not_allowed",
		"GET /v1/tasks/x HTTP/1.1\r\nHost: localhost":                            "404 unknown_task",
		"POST /v1/tasks?x=1 HTTP/1.1\r\nHost: localhost":                         "400 bad_parameter",
		"POST /v1/tasks HTTP/1.1\r\nHost: evil.example":                          "403 host_refused",
		"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example": "403 origin_refused",
	}
	conns := map[string]net.Conn{}
	for request := range want {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[request] = conn
		fmt.Fprintf(conn, "%s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", request)
	}
	for request, conn := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%q with a slow body = %v, want %s", request, err, want[request])
			continue
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got := fmt.Sprint(resp.StatusCode, " ", decode[struct{ Code string }](t, body).Code)
		if got != want[request] || !resp.Close {
			t.Errorf("%q with a slow body = %s, closed: %t, want %s and true", request, got, resp.Close, want[request])
		}
	}
}

// TestInvalidHTTP checks the responses to requests that are no valid HTTP, which net/http writes itself: docs/http.md
// describes them.
func TestInvalidHTTP(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	addr, _ := serve(t, f, ingest.Options{})
	header := func(size int) string { return "A: " + strings.Repeat("x", size) + "\r\n\r\n" }
	secured := httptest.NewTLSServer(nil) // its certificate is used
	defer secured.Close()
	tls, _ := serve(t, f, ingest.Options{Access: ingest.Access{TLS: secured.TLS}})
	const get, host = "GET /healthz HTTP/1.1\r\n", "Host: localhost\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		body    string
	}{
		"no HTTP":       {"hello\r\n\r\n", 400, "400 Bad Request"},
		"no host":       {get + "\r\n", 400, "400 Bad Request: missing required Host header"},
		"header":        {get + host + "a b: c\r\n\r\n", 400, "400 Bad Request: invalid header name"},
		"length":        {get + host + "Content-Length: x\r\n\r\n", 400, "400 Bad Request"},
		"large headers": {get + host + header(68<<10), 431, "431 Request Header Fields Too Large"},
		"large enough":  {get + host + header(67<<10), 200, ""},
		"no TLS":        {get + host + "\r\n", 400, "Client sent an HTTP request to an HTTPS server."},
		"encoding":      {get + host + "Transfer-Encoding: gzip\r\n\r\n", 501, "Unsupported transfer encoding"},
		"version":       {"GET /healthz HTTP/3.0\r\n" + host + "\r\n", 505, "505 HTTP Version Not Supported"},
		"expectation":   {get + host + "Expect: more\r\n\r\n", 417, ""},
	} {
		to := addr
		if name == "no TLS" {
			to = tls
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, c.request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s = %v, want %d", name, err, c.status)
			continue
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != c.status || resp.Close != (c.status >= 400) || !strings.HasPrefix(string(body), c.body) {
			t.Errorf("%s = %d %q, closed: %t, want %d %q, and that errors close the connection",
				name, resp.StatusCode, body, resp.Close, c.status, c.body)
		}
	}
}

func TestWaitMayExceedBodyTime(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	addr, _ := serve(t, f,
		ingest.Options{Limits: ingest.Limits{BodyTime: 500 * time.Millisecond, Wait: 600 * time.Millisecond}})
	start := time.Now()
	resp, err := http.Post("http://"+addr+"/v1/tasks?wait=1h", "application/json",
		strings.NewReader(`{"code":"block"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if elapsed := time.Since(start); resp.StatusCode != 202 || elapsed < 600*time.Millisecond {
		t.Errorf("POST = %d after %s, want 202 after the longest wait of 600ms", resp.StatusCode, elapsed)
	}
}

// TestSlowHandlersRespond checks that the time that a handler takes before it responds does not count as time to send
// the response.
func TestSlowHandlersRespond(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := ingest.Options{Limits: ingest.Limits{BodyTime: 500 * time.Millisecond, Wait: time.Millisecond}}
	o.Telemetry.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(2 * (o.Limits.BodyTime + o.Limits.Wait))
		fmt.Fprint(w, "done")
	})
	addr, _ := serve(t, f, o)
	for range 2 { // on one connection
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != "done" {
			t.Errorf("GET = %d %q, %v, want done", resp.StatusCode, got, err)
		}
	}
}

// TestSlowReader checks that a client that stops reading is disconnected after the time to send a response.
func TestSlowReader(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	ended := make(chan error, 1)
	addr, _ := serve(t, f, ingest.Options{
		Limits: ingest.Limits{BodyTime: 100 * time.Millisecond},
		Mounted: ingest.Mounted{MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for chunk := make([]byte, 1<<20); err == nil; {
				_, err = w.Write(chunk)
			}
			ended <- err
		})},
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write to a client that does not read = %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

func TestDrainReleasesWaiters(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	r := submit(t, f, "", `{"code":"block"}`)
	tracer := startTracer{started: make(chan struct{}, 2)}
	addr, stop := serve(t, f, ingest.Options{Telemetry: ingest.Telemetry{Tracer: tracer}})
	type outcome struct {
		status int
		body   string
		err    error
	}
	outcomes := make(chan outcome, 2)
	for _, path := range []string{"?wait=60s", "/events"} {
		go func() {
			resp, err := http.Get("http://" + addr + "/v1/tasks/" + r.TaskID + path)
			if err != nil {
				outcomes <- outcome{err: err}
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			outcomes <- outcome{resp.StatusCode, string(b), err}
		}()
	}
	<-tracer.started
	<-tracer.started
	start := time.Now()
	if err := stop(); err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
	if elapsed := time.Since(start); elapsed > 30*time.Second {
		t.Errorf("draining took %s, want less than the 60s of the request", elapsed)
	}
	for range 2 {
		o := <-outcomes
		if o.err != nil || o.status != 200 ||
			!strings.Contains(o.body, `"queued"`) && !strings.Contains(o.body, ": codefleet") {
			t.Errorf("response to a waiting request = %+v, want the record or the beginning of a stream", o)
		}
	}
}

// startTracer sends to started when the server begins to serve a request.
type startTracer struct {
	noop.Tracer
	started chan struct{}
}

func (c startTracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	c.started <- struct{}{}
	return noop.Tracer{}.Start(ctx, name, o...)
}

func TestOpenServerStaysOnLoopback(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	err = ingest.New(ingest.Options{}).Serve(t.Context(), ln)
	if err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("Serve on 0.0.0.0 without tokens = %v, want an error that mentions tokens", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Serve = %v, want net.ErrClosed", err)
	}
}

func TestServerWithTokensServesAnyAddress(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := ingest.Options{Telemetry: ingest.Telemetry{Log: slog.New(slog.DiscardHandler)}}
	o.Access.Tokens = []ingest.Token{{SHA256: sha256.Sum256([]byte("x"))}}
	if err := ingest.New(o).Serve(ctx, anyAddress{ln}); err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// anyAddress is a loopback listener whose address looks reachable from other hosts.
type anyAddress struct{ net.Listener }

func (anyAddress) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }
