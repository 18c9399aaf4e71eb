package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMessageReader(t *testing.T) {
	const limit = 150
	const a = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	long := strings.Repeat("x", 200000)
	for _, test := range []struct{ in, want, invalid string }{
		{a + "\n" + a, a + "\n" + a + "\n", ""},
		{"[" + a + ", " + a + "] \n", a + "\n" + a + "\n", ""},
		{"[]\n" + a + " \r\n", a + "\n", ""},
		{"{}\n" + a + "\n", a + "\n", "{}"},
		{"\n\nhello\n" + a + "\n{oops\n", a + "\n", "hello,{oops"},
		{
			`{"jsonrpc":"2.0","id":5,"result":{"x":"` + long + `"}}` + "\n" + a + "\n",
			`{"jsonrpc":"2.0","id":5,"error":{"code":-32099,` +
				`"message":"the response is 200043 bytes; the limit is 150"}}` + "\n" + a + "\n",
			"",
		},
		{
			`{"result":{"x":"` + long + `"},"jsonrpc":"2.0","id":"a-1"}` + "\n" + a + "\n",
			`{"jsonrpc":"2.0","id":"a-1","error":{"code":-32099,` +
				`"message":"the response is 200047 bytes; the limit is 150"}}` + "\n" + a + "\n",
			"",
		},
		{
			`{"jsonrpc":"2.0","id":6,"result":{"x":NaN}}` + "\n",
			`{"jsonrpc":"2.0","id":6,"error":{"code":-32098,` +
				`"message":"the response is not valid JSON: invalid character 'N'` +
				` looking for beginning of value, near id\":6,\"result\":{\"x\":NaN}}"}}` + "\n",
			"",
		},
		{
			`{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}` + "\n" + a + "\n", a + "\n",
			`{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}`,
		},
		{
			`{"jsonrpc":"2.0","method":"x","params":NaN,"id":7}` + "\n" + a + "\n", a + "\n",
			`{"jsonrpc":"2.0","method":"x","params":NaN,"id":7}`,
		},
		{
			`{"error":NaN,"jsonrpc":"2.0","id":7}` + "\n",
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32098,"message":"the response is not valid JSON: invalid ` +
				`character 'N' looking for beginning of value, near {\"error\":NaN,\"jsonr"}}` + "\n",
			"",
		},
		{`{"level":"info","id":3}` + "\n" + a + "\n", a + "\n", `{"level":"info","id":3}`},
		{`{"level":"warn","error":"no","id":3}` + "\n" + a + "\n", a + "\n", `{"level":"warn","error":"no","id":3}`},
		{`{"jsonrpc":"2.0","id":1,"method":5}` + "\n" + a + "\n", a + "\n", `{"jsonrpc":"2.0","id":1,"method":5}`},
		{
			`{"result":{},"error":null,"id":4}` + "\n",
			`{"jsonrpc":"2.0","id":4,"error":{"code":-32098,"message":"the response is malformed: ` +
				`invalid message version tag \"\"; expected \"2.0\""}}` + "\n",
			"",
		},
		{ // the SDK would respond with another id
			`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":1.5,"method":"ping"}` +
				"\n" + `{"jsonrpc":"2.0","id":7.0,"method":"ping"}` + "\n",
			`{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n", "",
		},
		{`{"result":NaN,"id":"00` + "\x01" + `"}` + "\n" + a + "\n", a + "\n", `{"result":NaN,"id":"00` + "\x01" + `"}`},
	} {
		var invalid []string
		l := newMessageReader(io.NopCloser(strings.NewReader(test.in)), limit,
			func(line string) { invalid = append(invalid, line) })
		got, err := io.ReadAll(l)
		if err != nil || string(got) != test.want || strings.Join(invalid, ",") != test.invalid {
			t.Errorf("%.40q: %.200q, %v, invalid %q, want %q", test.in, got, err, invalid, test.want)
		}
	}
	l := newMessageReader(io.NopCloser(strings.NewReader(`{"x":"`+long+`","id":"}`+"\n")), limit, func(string) {})
	if got, err := io.ReadAll(l); err == nil {
		t.Errorf("Read of a long line without an id = %.100q, want an error", got)
	}
	l = newMessageReader(io.NopCloser(strings.NewReader(`{"method":"`+long+`","id":1}`+"\n")), limit, func(string) {})
	if got, err := io.ReadAll(l); err == nil {
		t.Errorf("Read of a long request = %.100q, want an error", got)
	}
}

// TestServedMessages checks which messages of a server reach the SDK, over each transport. At the others the SDK would
// panic, or act for the server.
func TestServedMessages(t *testing.T) {
	const list = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	const panics = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}`
	const malformed = `{"jsonrpc":"2.0","id":1,"error":{"code":-32098,"message":"the response is malformed: %s"}}`
	const asks = `{"jsonrpc":"2.0","id":1,"error":{"code":-32098,` +
		`"message":"the tool asks for user input, which a program cannot provide"}}`
	response := func(result string) string { return `{"jsonrpc":"2.0","id":1,"result":` + result + `}` }
	for name, c := range map[string]struct{ in, want string }{
		"list changed": {list, list},
		"progress": {
			`{"params":{"progressToken":1,"progress":2},"jsonrpc":"2.0","method":"notifications/progress"}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}`,
		},
		"elicitation complete": {panics, ""},
		"null params":          {`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":null}`, ""},
		"null id":              {`{"jsonrpc":"2.0","id":null,"method":"notifications/elicitation/complete"}`, ""},
		"escaped method":       {`{"jsonrpc":"2.0","method":"notifications/elicitation\/complet\u0065"}`, ""},
		"method twice":         {`{"jsonrpc":"2.0","method":"ping","method":"notifications/elicitation/complete"}`, ""},
		"with a result":        {`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","result":{}}`, ""},
		"log message":          {`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`, ""},
		"unknown":              {`{"jsonrpc":"2.0","method":"x"}`, ""},
		"ping": {
			`{"jsonrpc":"2.0","id":"a","method":"ping","params":5}`, `{"jsonrpc":"2.0","id":"a","method":"ping"}`,
		},
		"elicitation": {
			`{"jsonrpc":"2.0","id":2,"method":"elicitation/create"}`,
			`{"jsonrpc":"2.0","id":2,"method":"unsupported: elicitation/create"}`,
		},
		"completion": { // the SDK would send it back to the server
			`{"jsonrpc":"2.0","id":2,"method":"completion/complete","params":{}}`,
			`{"jsonrpc":"2.0","id":2,"method":"unsupported: completion/complete"}`,
		},
		"notification with an id": {
			`{"jsonrpc":"2.0","id":2,"method":"notifications/progress"}`,
			`{"jsonrpc":"2.0","id":2,"method":"unsupported: notifications/progress"}`,
		},
		"content of another type": {
			response(`{"content":"text"}`), fmt.Sprintf(malformed, "a value has the wrong type"),
		},
		"error code of another type": {
			`{"jsonrpc":"2.0","id":1,"error":{"code":"E1","message":"x"}}`,
			fmt.Sprintf(malformed, "a value has the wrong type"),
		},
		"questions":      {response(`{"content":[],"inputRequests":{"a":null}}`), asks},
		"only questions": {response(`{"inputRequests":{"a":null}}`), asks},
		"no questions": {
			response(`{"content":[],"inputRequests":null}`), response(`{"content":[],"inputRequests":null}`),
		},
		"questions in tools": {response(`{"tools":[],"inputRequests":{"a":null}}`), asks},
		"questions, then null": {
			response(`{"inputRequests":{"a":null},"inputRequests":null}`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32098,"message":"the server's message could not be read: ` +
				`runtime error: invalid memory address or nil pointer dereference"}}`,
		},
		"result twice": {
			`{"jsonrpc":"2.0","id":1,"result":{"content":[],"inputRequests":{"a":null}},"Result":{}}`,
			asks,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for transport, read := range map[string]func(string) io.Reader{
				"lines": func(in string) io.Reader {
					return newMessageReader(io.NopCloser(strings.NewReader(in+"\n")), 1000, func(string) {})
				},
				"events": func(in string) io.Reader {
					return newEventReader(io.NopCloser(strings.NewReader("data: "+in+"\n\n")), 1000)
				},
				"body": func(in string) io.Reader {
					return &exactBody{ReadCloser: io.NopCloser(strings.NewReader(" \n\v" + in))}
				},
			} {
				got, err := io.ReadAll(read(c.in))
				if transport == "body" && c.want == "" {
					if !errors.Is(err, errUnreadable) {
						t.Errorf("%s: %q, %v, want errUnreadable", transport, got, err)
					}
					continue
				}
				want := c.want
				if transport == "events" && want == "" {
					want = strings.TrimSpace(strings.TrimPrefix(ignored, "data: "))
				}
				text := strings.TrimSpace(strings.TrimPrefix(string(got), "data: "))
				if err != nil || text != want {
					t.Errorf("%s: %q, %v, want %q", transport, text, err, want)
				}
			}
		})
	}
	// The SDK would decode these, which are not JSON.
	for name, in := range map[string]string{
		"trailing data": "data: " + panics + " x\n\n", "white space": "data: {\ndata: \v" + panics[1:] + "\n\n",
	} {
		got, err := io.ReadAll(newEventReader(io.NopCloser(strings.NewReader(in)), 1000))
		if err != nil || strings.Contains(string(got), "elicitation") {
			t.Errorf("%s: %q, %v, want the message left out", name, got, err)
		}
	}
}

// TestPanicIsAnError checks that a message at which the SDK panics ends only the connection.
func TestPanicIsAnError(t *testing.T) {
	err := func() (err error) {
		defer recovered(&err)
		return json.Unmarshal([]byte(`{"a":null}`), new(sdk.InputRequestMap))
	}()
	if !errors.Is(err, errUnreadable) || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("error = %v, want errUnreadable with the panic", err)
	}
}

// Whatever the input, messageReader returns only lines of valid JSON within the limit.
func FuzzMessageReader(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":1}` + "\nx\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":NaN}` + "\n"))
	f.Add([]byte(`{"result":"` + strings.Repeat("x", 300) + `","id":7}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := io.ReadAll(newMessageReader(io.NopCloser(bytes.NewReader(in)), 500, func(string) {}))
		if err != nil {
			return
		}
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			if line := bytes.TrimSpace(lines.Bytes()); len(line) > 501 || !json.Valid(line) {
				t.Errorf("Read returned the line %q, want JSON of at most 501 bytes", line)
			}
		}
	})
}

// TestDroppedEventsHaveData checks that an event whose message is left out keeps data: the SDK ends an SSE connection
// at an event without.
func TestDroppedEventsHaveData(t *testing.T) {
	const log = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}`
	in := "event: message\nid: 7\ndata: " + log + "\n\n"
	got, err := io.ReadAll(newEventReader(io.NopCloser(strings.NewReader(in)), 1000))
	if want := "event: message\nid: 7\n" + ignored + "\n"; err != nil || string(got) != want {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
	if !decodes([]byte(strings.TrimPrefix(ignored, "data: "))) {
		t.Errorf("the SDK does not decode %q", ignored)
	}
}
