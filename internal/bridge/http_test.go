package bridge_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
)

// serve serves a bridge for f over HTTP, and returns its address.
func serve(t *testing.T, f *ingesttest.Fleet, change func(*bridge.Options)) string {
	t.Helper()
	o := bridge.Options{Fleet: client.Options{URL: f.URL}}
	if change != nil {
		change(&o)
	}
	b := bridge.New(o)
	s := httptest.NewServer(b.Handler())
	t.Cleanup(s.Close)
	t.Cleanup(b.Close)
	return s.URL
}

// bearer is an http.RoundTripper that sends a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// dial connects a client. An empty version means the newest revision that both sides support.
func dial(t *testing.T, transport mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

func streamable(url, token string) *mcp.StreamableClientTransport {
	return &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)}}
}

// TestAllRevisions checks that one address serves every revision of the protocol, and that SSE works.
func TestAllRevisions(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	url := serve(t, f, nil)
	for _, version := range mcp.SupportedProtocolVersions() {
		cs := dial(t, streamable(url, ingesttest.Token), version)
		if got := cs.InitializeResult().ProtocolVersion; got != version {
			t.Errorf("negotiated revision = %s, want %s", got, version)
		}
		if got, _ := invoke(t, cs, "execute_task", map[string]any{"code": "print x"}); got["output"] != "x\n" {
			t.Errorf("%s: execute_task = %v, want the output x", version, got)
		}
	}
	cs := dial(t,
		&mcp.SSEClientTransport{Endpoint: url + "/sse", HTTPClient: &http.Client{Transport: bearer(ingesttest.Token)}},
		"")
	if got, _ := invoke(t, cs, "execute_task", map[string]any{"code": "print x"}); got["output"] != "x\n" {
		t.Errorf("execute_task over SSE = %v, want the output x", got)
	}
}

// post sends one message, with the headers of the given revision and session.
func post(t *testing.T, url, token, version, session, message string) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": version, "Mcp-Session-Id": session,
	} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name   string `json:"name"`
			TaskID string `json:"taskId"`
		} `json:"params"`
	}
	if version >= "2026" && json.Unmarshal([]byte(message), &m) == nil {
		r.Header.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.TaskID; name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw), resp.Header
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// TestAuthentication checks that only tenants' tokens are accepted, and that the response to other requests says why
// and does not advertise OAuth, which the fleet does not have.
func TestAuthentication(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	url := serve(t, f, nil)
	for token, want := range map[string]int{
		"": 401, "wrong": 401, ingesttest.Operator: 403, ingesttest.ReadOnly: 200, ingesttest.Token: 200,
	} {
		status, body, header := post(t, url, token, "", "", initialize)
		if status != want {
			t.Errorf("token %q: %d %s, want %d", token, status, body, want)
		}
		challenge := header.Get("WWW-Authenticate")
		if want == 401 && (!strings.HasPrefix(challenge, `Bearer realm="codefleet"`) ||
			strings.Contains(challenge, "resource_metadata") || !strings.Contains(body, "Authorization: Bearer") ||
			token != "" && !strings.Contains(challenge, `error="invalid_token"`)) {
			t.Errorf("token %q: WWW-Authenticate: %s; body %q; want a Bearer challenge and the reason",
				token, challenge, body)
		}
	}
	for _, path := range []string{"oauth-protected-resource/mcp", "oauth-authorization-server"} {
		resp, err := http.Get(url + "/.well-known/" + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s = %s, want 404", path, resp.Status)
		}
	}
	for _, path := range []string{"/health", "/healthz"} { // without a token
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || string(body) != `{"status":"ok"}` {
			t.Errorf("GET %s = %s %s, %v; want 200", path, resp.Status, body, err)
		}
	}
	// Some clients attempt to register after any 401, and show only the response to that.
	resp, err := http.Post(url+"/register", "application/json", strings.NewReader(`{"client_name":"t"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var refusal struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err = json.NewDecoder(resp.Body).Decode(&refusal)
	if err != nil || resp.StatusCode != 400 || refusal.Error == "" ||
		!strings.Contains(refusal.Description, "does not support OAuth") {
		t.Errorf("POST /register = %s %+v, %v; want 400 with the reason", resp.Status, refusal, err)
	}
}

// TestTenantsAreSeparate checks that a token gives no access to another tenant's sessions and tasks.
func TestTenantsAreSeparate(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	url := serve(t, f, nil)
	_, _, header := post(t, url, ingesttest.Token, "", "", initialize)
	session := header.Get("Mcp-Session-Id")
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if status, body, _ := post(t, url, ingesttest.Token, "2025-11-25", session, list); status != 200 {
		t.Errorf("request with its own session = %d %s, want 200", status, body)
	}
	if status, body, _ := post(t, url, ingesttest.Other, "2025-11-25", session, list); status != 404 {
		t.Errorf("request with another tenant's session = %d %s, want 404", status, body)
	}
	owner, other := dial(t, streamable(url, ingesttest.Token), ""), dial(t, streamable(url, ingesttest.Other), "")
	done, _ := invoke(t, owner, "execute_task", map[string]any{"code": "print secret"})
	got, failed := invoke(t, other, "get_task", map[string]any{"task_id": done["task_id"]})
	if !failed || got["error_code"] != "unknown_task" {
		t.Errorf("get_task of another tenant's task = %v, want unknown_task", got)
	}
	if _, err := other.ReadResource(t.Context(),
		&mcp.ReadResourceParams{URI: "codefleet://tasks/" + done["task_id"].(string) + "/output"}); err == nil {
		t.Error("ReadResource of another tenant's output = nil, want an error")
	}
}

// TestReplicas checks that a session continues at another bridge, but not after it was deleted.
func TestReplicas(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	first, second := serve(t, f, nil), serve(t, f, nil)
	_, _, header := post(t, first, ingesttest.Token, "", "", initialize)
	session := header.Get("Mcp-Session-Id")
	const run = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_task","arguments":{"code":"print on"}}}`
	if status, body, _ := post(t, second, ingesttest.Token, "2025-11-25", session, run); status != 200 ||
		!strings.Contains(body, `"output":"on\n"`) {
		t.Errorf("request to the second bridge = %d %s, want 200 with the output on", status, body)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, first+"/mcp", nil)
	r.Header.Set("Mcp-Session-Id", session)
	r.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("DELETE = %v, %v; want 204", resp, err)
	}
	resp.Body.Close()
	if status, _, _ := post(t, first, ingesttest.Token, "2025-11-25", session, run); status != 404 {
		t.Errorf("request with a deleted session = %d, want 404", status)
	}
}

// TestBadRequests checks that invalid requests get the protocol's error codes, and that the bridge survives them.
func TestBadRequests(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	url := serve(t, f, func(o *bridge.Options) { o.Limits.Body = 10_000 })
	huge := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + strings.Repeat("x", 20_000) + `"}}`
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	for name, c := range map[string]struct {
		version, message string
		status           int
		text             string
	}{
		"no JSON":    {"", "{", 400, ""},
		"no message": {"", "[]", 400, ""},
		"deep":       {"", strings.Repeat("[", 9_000), 400, ""},
		"huge":       {"", huge, 413, "10000 bytes"},
		"fractional id": {
			"", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, `"id":1.5,"error":{"code":-32600`,
		},
		"large id in an array": {
			"", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1e40,"method":"ping"}]`, 400,
			`"id":1e40,"error":{"code":-32600`,
		},
		"unknown version": {
			"1999-01-01", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 400, "supported versions",
		},
		"version of the future": {"2099-01-01", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` +
			strings.ReplaceAll(meta, "2026-07-28", "2099-01-01") + `}}`, 400, "-32022"},
		"unknown method": {
			"2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{` + meta + `}}`,
			404, "-32601",
		},
		"unknown tool": {
			"2026-07-28",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no",` + meta + `}}`, 400, "-32602",
		},
		"tasks undeclared": {
			"2026-07-28",
			`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x",` + meta + `}}`, 400, "-32021",
		},
	} {
		status, body, _ := post(t, url, ingesttest.Token, c.version, "", c.message)
		if status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, body, c.status, c.text)
		}
	}
	if got, _ := invoke(t, dial(t, streamable(url, ingesttest.Token), ""), "execute_task",
		map[string]any{"code": "print alive"}); got["output"] != "alive\n" {
		t.Errorf("execute_task after the invalid requests = %v, want the output alive", got)
	}
}

// TestLimits checks that requests above a tenant's limits are refused with the time to wait, and that other tenants
// are still served.
func TestLimits(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	t.Run("rate", func(t *testing.T) {
		url := serve(t, f, func(o *bridge.Options) { o.Limits.Rate = 1 })
		var refused http.Header
		for range 4 {
			if status, _, header := post(t, url, ingesttest.Token, "", "", initialize); status == 429 {
				refused = header
			}
		}
		if refused == nil || refused.Get("Retry-After") == "" {
			t.Errorf("four requests with a rate of 1 and a burst of 2: %v, want a 429 with Retry-After", refused)
		}
		if status, body, _ := post(t, url, ingesttest.Other, "", "", initialize); status != 200 {
			t.Errorf("request of another tenant = %d %s, want 200", status, body)
		}
	})
	t.Run("sessions", func(t *testing.T) {
		url := serve(t, f, func(o *bridge.Options) { o.Limits.Sessions = 2 })
		first := ""
		for i, want := range []int{200, 200, 429} {
			status, body, header := post(t, url, ingesttest.Token, "", "", initialize)
			if status != want || (header.Get("Retry-After") == "") != (want == 200) {
				t.Errorf("session %d: %d %s, %v, want %d, with Retry-After if it is refused",
					i, status, body, header, want)
			}
			first = cmp.Or(first, header.Get("Mcp-Session-Id"))
		}
		if status, body, _ := post(t, url, ingesttest.Other, "", "", initialize); status != 200 {
			t.Errorf("session of another tenant = %d %s, want 200", status, body)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		r.Header.Set("Mcp-Session-Id", first)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if status, body, _ := post(t, url, ingesttest.Token, "", "", initialize); status != 200 {
			t.Errorf("session after another has ended = %d %s, want 200", status, body)
		}
	})
	t.Run("concurrent", func(t *testing.T) {
		url := serve(t, f, func(o *bridge.Options) { o.Limits.Concurrent = 1 })
		cs := dial(t, streamable(url, ingesttest.Token), "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil { // the call is refused while other messages of the session are in progress
				_, _ = cs.CallTool(ctx,
					&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "block"}})
			}
		}()
		c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		eventually(t, "the call is in progress", func() bool {
			list, err := c.List(t.Context(), client.ListOptions{})
			return err == nil && len(list) == 1
		})
		if status, _, _ := post(t, url, ingesttest.Token, "", "", initialize); status != 429 {
			t.Errorf("second concurrent request = %d, want 429", status)
		}
		cancel()
		<-ended
	})
}

// TestGuard checks that requests with foreign hosts and origins are refused (DNS rebinding).
func TestGuard(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	b := bridge.New(bridge.Options{
		Fleet:   client.Options{URL: f.URL},
		Hosts:   []string{"mcp.example.org"},
		Origins: []string{"https://console.example.org"},
	})
	url := listen(t, b, "127.0.0.1:0")
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"", "", 200},
		{"localhost", "", 200},
		{"mcp.example.org", "", 200},
		{"evil.example.org", "", 403},
		{"", "https://console.example.org", 200},
		{"", "https://evil.example.org", 403},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(initialize))
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+ingesttest.Token)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("Host %q, Origin %q: %d, want %d", c.host, c.origin, resp.StatusCode, c.want)
		}
	}
}

// TestTokenRequiredBeyondLoopback checks that a bridge for a fleet without authentication requires a token on addresses
// other than loopback.
func TestTokenRequiredBeyondLoopback(t *testing.T) {
	f := ingesttest.Start(t, 0, func(o *ingest.Options, _ *jobs.Options) { o.Access.Tokens = nil })
	for addr, want := range map[string]int{"127.0.0.1:0": 200, "0.0.0.0:0": 401} {
		b := bridge.New(bridge.Options{Fleet: client.Options{URL: f.URL}})
		url := strings.Replace(listen(t, b, addr), "[::]", "127.0.0.1", 1)
		if status, body, _ := post(t, url, "", "", "", initialize); status != want {
			t.Errorf("on %s without a token: %d %s, want %d", addr, status, body, want)
		}
	}
}

// TestDrain checks that Close ends streams, and makes waiting calls return.
func TestDrain(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	b := bridge.New(bridge.Options{Fleet: client.Options{URL: f.URL}})
	url := listen(t, b, "127.0.0.1:0")
	cs := dial(t, streamable(url, ingesttest.Token), "2025-11-25") // it opens a stream
	results := make(chan map[string]any, 1)
	go func() {
		r, err := cs.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "block"}})
		if err != nil {
			results <- map[string]any{"error": err.Error()}
			return
		}
		got, _ := r.StructuredContent.(map[string]any)
		results <- got
	}()
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "the task runs", func() bool {
		list, err := c.List(t.Context(), client.ListOptions{Status: []client.Status{client.Running}})
		return err == nil && len(list) == 1
	})
	b.Close()
	if got := <-results; got["status"] != "running" {
		t.Errorf("result of a waiting call = %v, want a handle", got)
	}
	defer time.AfterFunc(ingesttest.WaitTimeout, func() { t.Error("the stream has not ended"); _ = cs.Close() }).Stop()
	_ = cs.Wait()
}

func listen(t *testing.T, b *bridge.Bridge, addr string) string {
	t.Helper()
	ln := newListener(t, addr)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, ln, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// TestNativeTasks checks that a client which declares the extension gets a task of the extension for a long call, and
// the result for a short one.
func TestNativeTasks(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	url := serve(t, f, nil)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	send := func(token, method, params string) map[string]any {
		t.Helper()
		_, body, _ := post(t, url, token, "2026-07-28", "",
			`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`,`+meta+`}}`)
		if _, data, ok := strings.Cut(body, "data: "); ok {
			body = data
		}
		var m struct {
			Result map[string]any `json:"result"`
			Error  map[string]any `json:"error"`
		}
		if err := json.NewDecoder(bytes.NewBufferString(body)).Decode(&m); err != nil {
			t.Fatalf("%s: decode %q = %v, want nil", method, body, err)
		}
		if m.Error != nil {
			return m.Error
		}
		return m.Result
	}
	call := func(code string) map[string]any {
		return send(ingesttest.Token, "tools/call", `"name":"execute_task","arguments":{"code":"`+code+`"}`)
	}
	if got := call("print short"); got["resultType"] != "complete" || got["taskId"] != nil {
		t.Errorf("short call = %v, want a result", got)
	}
	submitted := send(ingesttest.Token, "tools/call", `"name":"submit_task","arguments":{"code":"print x"}`)
	if submitted["resultType"] != "complete" || submitted["taskId"] != nil {
		t.Errorf("submit_task = %v, want a result", submitted)
	}
	task := call("block")
	id, _ := task["taskId"].(string)
	if task["resultType"] != "task" || task["status"] != "working" || id == "" || task["pollIntervalMs"] == nil ||
		task["ttlMs"] == nil {
		t.Fatalf("long call = %v, want a task", task)
	}
	if got := send(ingesttest.Token, "tasks/get", `"taskId":"`+id+`"`); got["status"] != "working" ||
		got["resultType"] != "complete" {
		t.Errorf("tasks/get = %v, want a working task", got)
	}
	if got := send(ingesttest.Other, "tasks/get", `"taskId":"`+id+`"`); got["code"] != -32602.0 {
		t.Errorf("tasks/get by another tenant = %v, want -32602", got)
	}
	if got := send(ingesttest.ReadOnly, "tasks/cancel", `"taskId":"`+id+`"`); got["code"] != -32600.0 {
		t.Errorf("tasks/cancel with the scope read = %v, want -32600", got)
	}
	if got := send(ingesttest.Token, "tasks/cancel", `"taskId":"`+id+`"`); got["resultType"] != "complete" {
		t.Errorf("tasks/cancel = %v, want complete", got)
	}
	eventually(t, "the task is cancelled", func() bool {
		return send(ingesttest.Token, "tasks/get", `"taskId":"`+id+`"`)["status"] == "cancelled"
	})
}

func newListener(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// TestFleetAddressIsNotRevealed checks that a caller over HTTP does not learn the fleet's address from an error.
func TestFleetAddressIsNotRevealed(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	url := serve(t, f, func(o *bridge.Options) { o.Fleet.RetryFor = time.Millisecond })
	c := dial(t, streamable(url, ingesttest.Token), "")
	invoke(t, c, "list_tasks", map[string]any{})
	f.HTTP.Close()
	got, failed := invoke(t, c, "list_tasks", map[string]any{})
	text := fmt.Sprint(got)
	if !failed || got["error_code"] != "unavailable" || strings.Contains(text, "dial") ||
		strings.Contains(text, strings.TrimPrefix(f.URL, "http://")) {
		t.Errorf("list_tasks = %v, %t, want unavailable without an address", got, failed)
	}
}
