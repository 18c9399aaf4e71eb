package ingest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
)

// registerTools opens a registration. It returns the lines of its stream after the first event, its id, and a function
// that ends it.
func registerTools(t *testing.T, url, body string) (lines *bufio.Scanner, id string, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/registrations", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ingesttest.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines = bufio.NewScanner(resp.Body)
	for {
		m, ok := next(lines)
		if !ok {
			t.Fatalf("registration = %d, and the stream ended; want the event registered", resp.StatusCode)
		}
		if m.event == "registered" {
			return lines, m.id, cancel
		}
	}
}

const doubleOffer = `{"server":"custom","tools":[{"name":"double","description":"d","inputSchema":{"type":"object"}}]}`

// callTool calls custom/double as a program does, and sends the response to the returned channel.
func callTool(ctx context.Context, c *jobs.Client, tenant string) <-chan string {
	out := make(chan string, 1)
	go func() {
		data, err := c.CallTool(ctx, tenant, jobs.ToolName{Server: "custom", Tool: "double"}, []byte(`{"args":{"x":21}}`))
		if err != nil {
			data = []byte("error: " + err.Error())
		}
		out <- string(data)
	}()
	return out
}

// nextCall returns the next call of a registration.
func nextCall(t *testing.T, lines *bufio.Scanner) (call struct {
	ID, Tool string
	Args     struct{ X int }
},
) {
	t.Helper()
	for {
		m, ok := next(lines)
		if !ok {
			t.Fatal("the stream ended; want a call")
		}
		if m.event == "call" {
			if err := json.Unmarshal([]byte(m.data), &call); err != nil {
				t.Fatal(err)
			}
			return call
		}
	}
}

func TestRegisteredToolOverHTTP(t *testing.T) {
	f := withTools(t)
	lines, id, _ := registerTools(t, f.URL, doubleOffer)

	answered := callTool(t.Context(), f.Jobs, "default")
	call := nextCall(t, lines)
	if call.Tool != "double" || call.Args.X != 21 {
		t.Fatalf("call = %+v, want double with x 21", call)
	}
	path := "/v1/registrations/" + id + "/answers"
	answer := `{"call":"` + call.ID + `","value":42}`
	for _, token := range []string{ingesttest.Other, ingesttest.Agent, ingesttest.ReadOnly, ingesttest.Operator} {
		want := errcode.Forbidden
		if token == ingesttest.Other { // the registration is not its tenant's
			want = errcode.UnknownRegistration
		}
		if got := errorCode(t, f, "POST", path, token, answer); got != want {
			t.Errorf("answer with the token %s = %s, want %s", token, got, want)
		}
	}
	if got := errorCode(t, f, "POST", path, ingesttest.Token, `{"call":"x","value":1}`); got != errcode.UnknownCall {
		t.Errorf("answer to an unknown call = %s, want %s", got, errcode.UnknownCall)
	}
	r, body := request(t, f, "POST", path, jsonType, strings.NewReader(answer))
	if r.StatusCode != 204 {
		t.Fatalf("answer = %d %s, want 204", r.StatusCode, body)
	}
	if got, want := <-answered, `{"value":42}`; got != want {
		t.Errorf("response to the program = %s, want %s", got, want)
	}
	if got := errorCode(t, f, "POST", path, ingesttest.Token, answer); got != errcode.UnknownCall {
		t.Errorf("second answer = %s, want %s", got, errcode.UnknownCall)
	}

	for fields, want := range map[string]string{
		`"error":"ValueError: no"`: `{"error":"ValueError: no","code":"failed"}`,
		`"error":""`:               `{"code":"failed"}`,
		`"value":1,"error":"no"`:   `{"error":"no","code":"failed"}`,
		`"value":1,"error":""`:     `{"value":1}`,
		`"value":null,"error":""`:  `{"value":null}`,
		`"value":2,"error":null`:   `{"value":2}`,
	} {
		answered = callTool(t.Context(), f.Jobs, "default")
		call = nextCall(t, lines)
		request(t, f, "POST", path, jsonType, strings.NewReader(`{"call":"`+call.ID+`",`+fields+`}`))
		if got := <-answered; got != want {
			t.Errorf("response for the answer %s = %s, want %s", fields, got, want)
		}
	}

	// Answers of which JSON escapes much fit as they are; larger ones become an error.
	for size, want := range map[int]string{1 << 19: `{"value":"<<<`, 1 << 20: `{"error":"the response is larger than`} {
		answered = callTool(t.Context(), f.Jobs, "default")
		call = nextCall(t, lines)
		r, text := request(t, f, "POST", path, jsonType,
			strings.NewReader(`{"call":"`+call.ID+`","value":"`+strings.Repeat("<", size)+`"}`))
		if got := <-answered; r.StatusCode != 204 || !strings.HasPrefix(got, want) {
			t.Errorf("answer of %d bytes = %d %s, response %.80s, want 204 and %s", size, r.StatusCode, text, got, want)
		}
	}
	if got := <-callTool(t.Context(), f.Jobs, "other"); !strings.Contains(got, jobs.ErrNoResponders.Error()) {
		t.Errorf("call of another tenant = %s, want %v", got, jobs.ErrNoResponders)
	}
}

// TestAnswerAtAnotherProcess sends an answer to a process other than the one that has the stream.
func TestAnswerAtAnotherProcess(t *testing.T) {
	f := withTools(t)
	lines, id, _ := registerTools(t, f.URL, doubleOffer)
	addr, _ := serve(t, f, ingest.Options{})
	answered := callTool(t.Context(), f.Jobs, "default")
	body := `{"call":"` + nextCall(t, lines).ID + `","value":{"result":42}}`
	other := &ingesttest.Fleet{URL: "http://" + addr}
	r, text := request(t, other, "POST", "/v1/registrations/"+id+"/answers", jsonType, strings.NewReader(body))
	if got, want := <-answered, `{"value":{"result":42}}`; r.StatusCode != 204 || got != want {
		t.Errorf("answer at another process = %d %s, response %s; want 204, %s", r.StatusCode, text, got, want)
	}
}

func TestRegistrationEndsWithItsConnection(t *testing.T) {
	f := withTools(t)
	lines, _, end := registerTools(t, f.URL, doubleOffer)
	answered := callTool(t.Context(), f.Jobs, "default")
	nextCall(t, lines)
	end()
	if got := <-answered; !strings.Contains(got, "the tool's process did not answer") {
		t.Errorf("call in progress = %s, want an error", got)
	}
	ctx, stop := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	defer stop()
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		answer, err := f.Jobs.CallTool(short, "default", jobs.ToolName{Server: "custom", Tool: "double"}, []byte(`{"args":{}}`))
		cancel()
		if errors.Is(err, jobs.ErrNoResponders) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("call after the end = %s, %v, want %v", answer, err, jobs.ErrNoResponders)
		}
	}
	_, _, _ = registerTools(t, f.URL, doubleOffer) // the name is free again
}

func TestRefusedRegistrations(t *testing.T) {
	f := withTools(t)
	tool := func(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }
	for _, c := range []struct{ name, token, body, want, path string }{
		{"no scope", ingesttest.Agent, doubleOffer, errcode.Forbidden, ""},
		{"no tenant", ingesttest.Operator, doubleOffer, errcode.Forbidden, ""},
		{"no JSON", ingesttest.Token, `{`, errcode.BadJSON, ""},
		{"a server of the fleet", ingesttest.Token, `{"server":"math","tools":[` + tool("sub") + `]}`, errcode.ToolTaken, "/server"},
		{
			"a server that the tenant may not call", ingesttest.Other,
			`{"server":"math","tools":[` + tool("sub") + `]}`, errcode.ToolTaken, "/server",
		},
		{"no tools", ingesttest.Token, `{"server":"a","tools":[]}`, errcode.BadData, "/tools"},
		{"a path", ingesttest.Token, `{"server":"../a","tools":[` + tool("b") + `]}`, errcode.BadData, "/server"},
		{"a bad tool", ingesttest.Token, `{"server":"a","tools":[` + tool("ok") + `,` + tool("x y") + `]}`, errcode.BadData, "/tools/1"},
		{"a tool twice", ingesttest.Token, `{"server":"a","tools":[` + tool("b") + `,` + tool("b") + `]}`, errcode.BadData, "/tools/1"},
		{"too many calls", ingesttest.Token, `{"server":"a","concurrency":1000,"tools":[` + tool("b") + `]}`, errcode.BadData, "/concurrency"},
	} {
		_, body := request(t, f, "POST", "/v1/registrations",
			map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + c.token},
			strings.NewReader(c.body))
		var got struct{ Code, Path string }
		if err := json.Unmarshal(body, &got); err != nil || got.Code != c.want || got.Path != c.path {
			t.Errorf("%s: error %q at %q (%v), want %q at %q", c.name, got.Code, got.Path, err, c.want, c.path)
		}
	}
}
