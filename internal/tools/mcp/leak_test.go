package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/mcp"
)

// An HTTP server restarts and no longer knows the session. The error says that the call may have taken
// effect, without the session's secret ID. The next call uses the new server.
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
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*current.Load()).ServeHTTP(w, r)
	}))
	defer web.Close()
	m, out := manager(t, mcp.Server{Name: "web", URL: web.URL})
	call := func(repeatable bool) error {
		r := tools.Request{Server: "web", Tool: "hello", Args: json.RawMessage(`{}`), Repeatable: repeatable}
		_, err := m.Call(t.Context(), r)
		return err
	}
	if err := call(false); err != nil {
		t.Fatal(err)
	}
	restart()
	if err := call(false); reason(t, err) != tools.Lost || !strings.Contains(err.Error(), "session not found") ||
		strings.Contains(err.Error(), "session ID") {
		t.Errorf("the call after the restart: %v; want a lost call, and not the session's ID", err)
	}
	if err := call(false); err != nil {
		t.Errorf("the next call = %v, want nil", err)
	}
	restart()
	if err := call(true); err != nil {
		t.Errorf("a call that may be repeated = %v, want nil", err)
	}
	m.Close()
	if made.Load() != 3 || strings.Contains(out.String(), "session ID") {
		t.Errorf("%d calls were made, want 3; the log:\n%s", made.Load(), out)
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
	process.Env["API_TOKEN"] = "s3cr3t-env"
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
				_, err = callHostile(t, m, "betray", `{}`)
			}
			if err == nil {
				t.Fatal("both calls succeeded, want an error")
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
