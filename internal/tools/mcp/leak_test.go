package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// An HTTP server restarts and no longer knows the session. The call, which the server refused, is made again. If the
// server refuses that one, too, the error says that the call was not made, without the session's secret ID.
func TestForgottenSession(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	newHandler := func() http.Handler {
		server := sdk.NewServer(&sdk.Implementation{Name: "web"}, nil)
		sdk.AddTool(server, &sdk.Tool{Name: "hello"}, func(
			context.Context, *sdk.CallToolRequest, struct{},
		) (*sdk.CallToolResult, any, error) {
			made.Add(1)
			return nil, nil, nil
		})
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	}
	var current atomic.Pointer[http.Handler]
	restart := func() {
		h := newHandler()
		current.Store(&h)
	}
	restart()
	var forgetful, refuseNext atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if forgetful.Load() && bytes.Contains(data, []byte("tools/")) { // tools/list and tools/call
			http.Error(w, "no session", http.StatusNotFound)
			return
		}
		if bytes.Contains(data, []byte("tools/")) && refuseNext.CompareAndSwap(true, false) {
			var request struct{ ID json.RawMessage }
			_ = json.Unmarshal(data, &request) // of the SDK
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"Session not found"}}`,
				request.ID)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		(*current.Load()).ServeHTTP(w, r)
	}))
	defer web.Close()
	m, out := manager(t, mcp.Server{Name: "web", URL: web.URL})
	defs, _, err := m.Definitions(t.Context(), "web", "", "")
	if err != nil {
		t.Fatal(err)
	}
	call := func(hash string, repeatable bool) error {
		_, err := m.Call(t.Context(), tools.Request{
			Server: "web", Tool: "hello", Args: json.RawMessage(`{}`), Hash: hash, Repeatable: repeatable,
		})
		return err
	}
	expireList := func() { // as the server's refusal of a call does
		r := tools.Request{Server: "web", Tool: "nosuch", Args: json.RawMessage(`{}`)}
		if _, err := m.Call(t.Context(), r); reason(t, err) != tools.Refused {
			t.Errorf("call of an unknown tool = %v, want refused", err)
		}
	}
	for _, hash := range []string{"", defs[0].Hash()} { // with a hash, the first request is for the list of tools
		for _, repeatable := range []bool{false, true} {
			expireList()
			restart()
			if err := call(hash, repeatable); err != nil {
				t.Errorf("a call after the restart (hash %q, repeatable %t) = %v, want nil", hash, repeatable, err)
			}
		}
	}
	for _, hash := range []string{"", defs[0].Hash()} {
		expireList()
		refuseNext.Store(true)
		if err := call(hash, false); err != nil || refuseNext.Load() {
			t.Errorf("a call whose session is not found (hash %q) = %v, want nil", hash, err)
		}
	}
	forgetful.Store(true)
	for _, hash := range []string{"", defs[0].Hash()} {
		err := call(hash, false)
		if ue, ok := errors.AsType[*tools.UpstreamError](err); !ok || ue.Reason != tools.Lost || ue.Sent ||
			!strings.Contains(err.Error(), "404 Not Found: no session") || strings.Contains(err.Error(), "session ID") {
			t.Errorf("a call that is refused twice = %#v; want that it was not made, and not the session's ID", err)
		}
	}
	m.Close()
	if made.Load() != 6 || strings.Contains(out.String(), "session ID") {
		t.Errorf("%d calls were made, want 6; the log:\n%s", made.Load(), out)
	}
}

// The stream with the response to a call is cut, and the server, which has made the call, does not resume it. The call
// is lost: it was neither refused nor answered by the error that refuses the stream.
func TestStreamThatIsNotResumed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"plain": "no such stream", "JSON-RPC": `{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"restarted"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sdk.NewServer(&sdk.Implementation{Name: "web"}, nil)
			handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(data))
				switch {
				case r.Header.Get("Last-Event-ID") != "":
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, body)
				case bytes.Contains(data, []byte("tools/call")):
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "id: 1\ndata: \n\n")
				case r.Method == http.MethodGet:
					w.WriteHeader(http.StatusMethodNotAllowed)
				default:
					handler.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(func() { // after the manager's
				web.CloseClientConnections()
				web.Close()
			})
			m, _ := manager(t, mcp.Server{Name: "web", URL: web.URL})
			_, err := m.Call(t.Context(), tools.Request{Server: "web", Tool: "x", Args: json.RawMessage(`{}`)})
			if ue, ok := errors.AsType[*tools.UpstreamError](err); !ok || ue.Reason != tools.Lost || !ue.Sent {
				t.Errorf("call = %#v, want it lost and sent", err)
			}
		})
	}
}

// No error, log line or health status contains a secret from the server's settings, even if the server wrote
// the text.
func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"initialize"`) || r.URL.Path == "/refuses" {
			message := fmt.Sprintf("who are you, %s with %s?", r.Header.Get("Authorization"), r.URL)
			http.Error(w, message, http.StatusUnauthorized)
		}
	}))
	defer echo.Close()
	headers := map[string]string{"Authorization": "Bearer s3cr3t-header", "X-Team": "s3cr3t-team"}
	process := hostileServer(t, "secret")
	process.Env["API_TOKEN"], process.Env["API_KEY"] = "s3cr3t-env", "/s3cr3t/key"
	process.Env["ACCOUNT"] = "123456789012"
	process.Env["PEM"] = "s3cr3t-line-1\ns3cr3t-line-2\n"
	process.Args = []string{"--key", "s3cr3t-arg"}
	for name, s := range map[string]mcp.Server{
		"unreachable": {URL: "http://u:s3cr3t-password@127.0.0.1:1/mcp?api_key=s3cr3t-query", Headers: headers},
		"not resolved": {
			URL:     "http://s3cr3t-user@no-such-host.invalid/s3cr3t-path?s3cr3t-name=1#s3cr3t-fragment",
			Headers: headers,
		},
		"refused":        {URL: echo.URL + "/refuses?api_key=s3cr3t-query", Headers: headers},
		"standard error": process,
	} {
		t.Run(name, func(t *testing.T) {
			s.Name = "hostile"
			m, out := manager(t, s)
			_, err := callHostile(t, m, "echo", `{}`)
			if err == nil {
				res, _ := callHostile(t, m, "confess", `{}`)
				if got := fmt.Sprintf("%+v %s", res.Content, res.Structured); strings.Contains(got, "s3cr3t") ||
					!strings.Contains(got, `my token is (hidden)`) ||
					!strings.Contains(got, `{"account":"(hidden)","token":"(hidden)"}`) {
					t.Errorf("an error result has %s, want the secrets redacted", got)
				}
				_, err = callHostile(t, m, "betray", `{}`)
			}
			if err == nil {
				t.Fatal("no call failed, want an error")
			}
			t.Log(err)
			health := fmt.Sprintf("%+v", m.Health())
			m.Close()
			for where, text := range map[string]string{
				"the error": err.Error(), "the log": out.String(), "the health": health,
			} {
				if strings.Contains(text, "s3cr3t") {
					t.Errorf("%s has a secret, want it redacted: %s", where, text)
				}
			}
		})
	}
}

// The texts of a definition, which the fleet publishes, do not contain a secret. A default that is one is left out, a
// permitted value stays.
func TestDefinitionsAreRedacted(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, "secret")
	s.Env["API_TOKEN"] = "s3cr3t-env"
	m, _ := manager(t, s)
	got, _, err := m.Definitions(t.Context(), "hostile", "", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []tools.Definition{{
		Name: "echo", Title: "(hidden)", Description: "to (hidden)",
		InputSchema: json.RawMessage(`{"properties":{"default":{"description":"(hidden)"},` +
			`"mode":{"default":"fast","enum":["s3cr3t-env"]}},"type":"object"}`),
		OutputSchema: json.RawMessage(`{"$comment":"(hidden)","type":"object"}`),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Definitions (-want +got):\n%s", diff)
	}
}

// Secrets are found in the forms that they have in the texts of programs.
func TestEscapedSecrets(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, "plain")
	s.Env["DSN"] = `redis://us:pw2%34681012 &é@h/0?a=1&b="2"`
	s.Env["API_KEY"] = `p<s3cr3t>\n\'s/&é😀+ "%41x`
	s.Env["OTHER"] = "host=h password=s3cr3t-in-env"
	m, out := manager(t, s)
	res, err := callHostile(t, m, "escape", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	text := res.Content[0].Text
	if got := strings.Trim(strings.ReplaceAll(text, "(hidden)", ""), "\"\\\n%25C "); got != "" {
		t.Errorf("the text still has %q of %q", got, text)
	}
	for where, got := range map[string]string{"the structure": string(res.Structured), "the log": out.String()} {
		for _, clue := range []string{"s3cr3t", "468", "redis", "us:", `0070\u003C`, "0078"} {
			if strings.Contains(got, clue) {
				t.Errorf("%s has a secret (%s): %s", where, clue, got)
			}
		}
	}
}

// A list of tools that is too large is not requested again on a new connection.
func TestLargeList(t *testing.T) {
	t.Parallel()
	server := sdk.NewServer(&sdk.Implementation{Name: "web"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "hello", Description: strings.Repeat("x", 2<<20)},
		func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{}, nil, nil
		})
	var lists atomic.Int64
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if method == "tools/list" {
				lists.Add(1)
			}
			return next(ctx, method, r)
		}
	})
	for _, asJSON := range []bool{false, true} {
		web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
			&sdk.StreamableHTTPOptions{JSONResponse: asJSON}))
		t.Cleanup(func() { // after the manager's
			web.CloseClientConnections()
			web.Close()
		})
		m, _ := manager(t, mcp.Server{Name: "web", URL: web.URL, Limits: mcp.Limits{MaxResultBytes: 1 << 20}})
		_, err := m.Call(t.Context(), tools.Request{
			Server: "web", Tool: "hello", Args: json.RawMessage(`{}`), Hash: "x",
		})
		if n := lists.Swap(0); n != 1 || reason(t, err) != tools.Down || !strings.Contains(err.Error(), "too large") {
			t.Errorf("JSON %t: call after %d lists = %v, want down after one: the list is too large", asJSON, n, err)
		}
	}
}
