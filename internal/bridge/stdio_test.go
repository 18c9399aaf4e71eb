package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// lines starts b on standard input and output, and the session of a client. It returns functions that send and receive
// one line.
func lines(t *testing.T, b *bridge.Bridge) (send func(line string), receive func() string) {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.ServeStdio(context.WithoutCancel(t.Context()), in, out) })
	t.Cleanup(func() { b.Close(); toServer.Close(); fromServer.Close(); wg.Wait() })
	received := bufio.NewScanner(fromServer)
	received.Buffer(nil, 1<<20)
	receive = func() string {
		t.Helper()
		if !received.Scan() {
			t.Fatalf("the bridge has ended: %v", received.Err())
		}
		return received.Text()
	}
	send = func(line string) {
		t.Helper()
		if _, err := io.WriteString(toServer, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if got := receive(); !strings.Contains(got, `"id":"i"`) {
		t.Fatal(got)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return send, receive
}

// TestMalformedLines checks that the bridge responds to each malformed line with an error and serves the next request.
func TestMalformedLines(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	send, receive := lines(t, bridge.New(options(f, ingesttest.Token)))
	const parse, invalid = `"code":-32700`, `"code":-32600`
	for i, c := range []struct{ line, id, code string }{
		{`[]`, `null`, invalid},
		{` [ ] `, `null`, invalid},
		{`{`, `null`, parse},
		{`hello`, `null`, parse},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} trailing`, `null`, parse},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, `null`, parse},
		{strings.Repeat("[", 20_000), `null`, parse},
		{strings.Repeat("x", 48<<20+1), `null`, invalid},
		{`1`, `null`, invalid},
		{`null`, `null`, invalid},
		{`"x"`, `null`, invalid},
		{`{}`, `null`, invalid},
		{`{"id":7,"method":"ping"}`, `7`, invalid},
		{`{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`, invalid},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `null`, invalid},
		{`{"jsonrpc":"2.0","id":8,"method":5}`, `8`, invalid},
		{`{"jsonrpc":"2.0","result":{}}`, `null`, invalid},
		{`[1]`, `null`, invalid},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `1.5`, invalid},
		{`{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, `1e3`, invalid},
		{`{"jsonrpc":"2.0","id":99999999999999999999999,"method":"ping"}`, `99999999999999999999999`, invalid},
		{`{"jsonrpc":"2.0","id":-9007199254740993,"method":"ping"}`, `-9007199254740993`, invalid},
		{`{"jsonrpc":"2.0","id":4,"method":"x","params":{"_meta":{"progressToken":9007199254740993}}}`, `4`, invalid},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"_meta":{"progressToken":1.5}}}`, `5`, invalid},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `null`, invalid},
		{`{"jsonrpc":"2.0","id":3}`, `3`, invalid},
		{`{"jsonrpc":"2.0","id":"` + "\xff" + `","method":"ping"}`, `null`, parse},
	} {
		send(c.line)
		if got := receive(); !strings.Contains(got, `"id":`+c.id) || !strings.Contains(got, c.code) {
			t.Errorf("response to %.60s: %s, want id %s and %s", c.line, got, c.id, c.code)
		}
		send(fmt.Sprintf(`  {"jsonrpc":"2.0","id":"p%d","method":"ping"}  `+"\r", i))
		if got := receive(); !strings.Contains(got, fmt.Sprintf(`"id":"p%d"`, i)) || !strings.Contains(got, "result") {
			t.Fatalf("response to a ping after %.60s: %s", c.line, got)
		}
	}
	send(`{"jsonrpc":"2.0","id":-9007199254740992,"method":"ping",` +
		`"params":{"_meta":{"progressToken":9007199254740992}}}`)
	if got := receive(); !strings.Contains(got, `"id":-9007199254740992,"result"`) {
		t.Errorf("response to a ping with a large id: %s", got)
	}
	send("\n\n" + `[{"jsonrpc":"2.0","id":"x","method":"ping"},{"jsonrpc":"2.0","id":"y","method":"ping"},5]`)
	got := receive() + receive() + receive()
	for _, want := range []string{`"id":"x"`, `"id":"y"`, invalid} {
		if !strings.Contains(got, want) {
			t.Errorf("responses to an array: %s, want %s among them", got, want)
		}
	}
}

// TestPanicOfAHandler checks that the bridge responds to a request whose handler panics, logs the panic, and serves the
// next request.
func TestPanicOfAHandler(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := options(f, ingesttest.Token)
	var log bytes.Buffer // its handler writes before the response
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b := bridge.New(o)
	b.Extend(nil, func(s *mcp.Server) {
		s.AddTool(&mcp.Tool{Name: "broken", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("a secret") })
	})
	send, receive := lines(t, b)
	send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"broken"}}`)
	if got := receive(); !strings.Contains(got, `"id":1,"error":{"code":-32603,"message":"the bridge has a bug;`) {
		t.Errorf("response to the broken tool = %s, want the code -32603", got)
	}
	send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if got := receive(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("response to a ping = %s, want a result", got)
	}
	if got := log.String(); !strings.Contains(got, "method=tools/call") || !strings.Contains(got, "a secret") {
		t.Errorf("log = %s, want the method and the panic", got)
	}
}
