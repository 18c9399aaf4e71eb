package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestTaskRequestsWithoutParams checks that the bridge refuses a request about a task that names no task, and serves
// the next request, whatever the transport and the revision.
func TestTaskRequestsWithoutParams(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	send, receive := lines(t, bridge.New(options(f, ingesttest.Token)))
	url := serve(t, f, nil)
	_, _, header := post(t, url, ingesttest.Token, "", "", initialize)
	session := header.Get("Mcp-Session-Id")
	const invalid, undeclared = `"code":-32602`, `"code":-32021`
	const declared = `,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		for _, c := range []struct{ params, code string }{
			{"", invalid}, {`,"params":null`, invalid}, {`,"params":{}`, undeclared}, {declared, invalid},
		} {
			request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q%s}`, method, c.params)
			send(request)
			if got := receive(); !strings.Contains(got, c.code) {
				t.Errorf("stdio: response to %s = %s, want %s", request, got, c.code)
			}
			if c.params == declared {
				_, got, _ := post(t, url, ingesttest.Token, "2026-07-28", "", request)
				if !strings.Contains(got, c.code) {
					t.Errorf("HTTP without a session: response to %s = %s, want %s", request, got, c.code)
				}
				continue
			}
			_, got, _ := post(t, url, ingesttest.Token, "2025-11-25", session, request)
			if !strings.Contains(got, c.code) {
				t.Errorf("HTTP with a session: response to %s = %s, want %s", request, got, c.code)
			}
			// The SDK refuses a request of this revision that has no _meta, so that its code may be another one.
			if status, got, _ := post(t, url, ingesttest.Token, "2026-07-28", "", request); status != 400 {
				t.Errorf("HTTP without a session: response to %s = %d %s, want 400", request, status, got)
			}
		}
	}
	send(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	if got := receive(); !strings.Contains(got, `"id":"last","result"`) {
		t.Errorf("response to a ping = %s, want a result", got)
	}
}
