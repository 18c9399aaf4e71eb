package bridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// user is who sits before a client: it answers each form with the next of its words.
type user struct {
	mu    sync.Mutex
	words []string // approve, approve_all, deny; decline, cancel; hang: until the form is taken back
	seen  []string
	free  chan struct{} // nil, or closed to end what hangs
}

func (u *user) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			u.mu.Lock()
			u.seen = append(u.seen, req.Params.Message)
			word := "cancel"
			if len(u.words) > 0 {
				word, u.words = u.words[0], u.words[1:]
			}
			u.mu.Unlock()
			switch word {
			case "decline", "cancel":
				return &mcp.ElicitResult{Action: word}, nil
			case "hang":
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-u.free:
					return &mcp.ElicitResult{Action: "cancel"}, nil
				}
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": word}}, nil
		},
	}
}

func (u *user) asked() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

// dialAs connects over HTTP with a token, as a client whose user may be asked.
func dialAs(t *testing.T, url, token, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	cs, err := c.Connect(t.Context(), streamable(url, token), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// generations are a revision of the protocol each with and without sessions.
var generations = []string{"2025-11-25", "2026-07-28"}

// TestApproval: a client that can ask its user is asked about calls that wait, in both generations of the
// protocol; what the user says is what the program hears.
func TestApproval(t *testing.T) {
	f := ingesttest.Start(t, 4, nil)
	url := serve(t, f, nil)
	for _, version := range generations {
		for _, c := range []struct {
			words        []string
			code, output string
			asked        int
		}{
			{
				[]string{"approve", "deny", "decline"},
				"ask a b c",
				"approved default\ndenied default\ndenied default\n", 3,
			},
			{[]string{"approve_all"}, "ask a b c", "approved default\napproved default\napproved default\n", 1},
		} {
			u := &user{words: c.words}
			cs := dialAs(t, url, ingesttest.Token, version, u.options())
			got, failed := invoke(t, cs, "execute_task", map[string]any{"code": c.code})
			if failed || got["output"] != c.output || u.asked() != c.asked {
				t.Errorf("%s: %v: %v after %d questions, want %q after %d", version, c.words, got, u.asked(),
					c.output, c.asked)
			}
			if !strings.Contains(u.seen[0], `crm/drop`) || !strings.Contains(u.seen[0], `arguments: "a"`) {
				t.Errorf("the user was asked %q", u.seen[0])
			}
		}

		// Who closes the form decides nothing: the client says what to type, and asks again in the next call.
		u := &user{words: []string{"cancel", "approve"}}
		cs := dialAs(t, url, ingesttest.Token, version, u.options())
		got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "ask " + version, "wait_ms": 300})
		if failed || got["status"] != "running" || got["approval"] == nil || u.asked() != 1 {
			t.Fatalf("%s: after a closed form: %v, asked %d times", version, got, u.asked())
		}
		if got, _ = invoke(t, cs, "get_task",
			map[string]any{"task_id": got["task_id"]}); got["output"] != "approved default\n" ||
			u.asked() != 2 {
			t.Errorf("%s: get_task: %v, asked %d times", version, got, u.asked())
		}
	}
}

// TestApprovalWithoutAsking: clients that cannot ask, or whose token may not answer, say what waits and
// what to type; get_task goes on when somebody else has answered.
func TestApprovalWithoutAsking(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	url := serve(t, f, nil)
	fleet, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	for _, version := range generations {
		for token, u := range map[string]*user{ingesttest.Token: nil, ingesttest.Agent: {words: []string{"approve"}}} {
			var o *mcp.ClientOptions
			if u != nil {
				o = u.options()
			}
			cs := dialAs(t, url, token, version, o)
			began := time.Now()
			got, failed := invoke(t, cs, "execute_task",
				map[string]any{"code": "ask " + version + token, "wait_ms": 20000})
			open, _ := got["approval"].([]any)
			if failed || len(open) != 1 || time.Since(began) > 15*time.Second {
				t.Fatalf("%s, %s: %v, want what waits, at once", version, token, got)
			}
			id := got["task_id"].(string)
			one := open[0].(map[string]any)
			if want := "codefleet approve " + id + " " + one["call"].(string); one["approve"] != want ||
				one["deny"] != want+" --deny" || one["tool"] != "crm/drop" ||
				!strings.Contains(got["hint"].(string), want) ||
				got["success"] != true {
				t.Errorf("what waits: %v", got)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := fleet.Answer(t.Context(), id, client.Answer{Approve: true}); err != nil {
					t.Error(err)
				}
			})
			if got, _ = invoke(t, cs, "get_task",
				map[string]any{"task_id": id}); got["output"] != "approved default\n" ||
				got["approval"] != nil {
				t.Errorf("%s, %s: get_task: %v", version, token, got)
			}
			wg.Wait()
			if u != nil && u.asked() > 0 {
				t.Errorf("a user was asked whose token may not answer")
			}
		}
	}
}

// TestApprovalOfVanishedClient: a client that goes away in the middle of a question decides nothing, and
// another bridge asks again.
func TestApprovalOfVanishedClient(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	u := &user{words: []string{"hang"}, free: make(chan struct{})}
	cs, hangUp := stdio(t, options(f, ingesttest.Token), u.options())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cs.CallTool(context.WithoutCancel(t.Context()),
			&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "ask a"}})
	}()
	eventually(t, "a question", func() bool { return u.asked() == 1 })
	hangUp()
	defer func() { close(u.free); <-ended }()
	again := &user{words: []string{"deny"}}
	cs, _ = stdio(t, options(f, ingesttest.Token), again.options())
	listed, _ := invoke(t, cs, "list_tasks", map[string]any{"status": []string{"running"}})
	id := listed["tasks"].([]any)[0].(map[string]any)["task_id"]
	if got, _ := invoke(t, cs, "get_task", map[string]any{"task_id": id}); got["output"] != "denied default\n" ||
		again.asked() != 1 {
		t.Errorf("another bridge: %v, asked %d times", got, again.asked())
	}
}

// TestApprovalIsBounded: a user who says nothing does not keep the client waiting beyond its patience.
func TestApprovalIsBounded(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	for _, version := range generations[:1] {
		u := &user{words: []string{"hang", "hang"}}
		url := serve(t, f, func(o *bridge.Options) { o.MaxWait, o.Wait = 500*time.Millisecond, 400*time.Millisecond })
		cs := dialAs(t, url, ingesttest.Token, version, u.options())
		if got, failed := invoke(t, cs, "execute_task",
			map[string]any{"code": "ask a"}); failed || got["approval"] == nil ||
			got["status"] != "running" {
			t.Errorf("%v, want what waits", got)
		}
	}
}

// TestNativeApproval: a native task asks by its status, and is answered by tasks/update.
func TestNativeApproval(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	url := serve(t, f, nil)
	call := func(token, method, params string, elicitation bool) map[string]any {
		t.Helper()
		caps := `"extensions":{"io.modelcontextprotocol/tasks":{}}`
		if elicitation {
			caps += `,"elicitation":{}`
		}
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{` + caps + `}}`
		_, body, _ := post(t, url, token, "2026-07-28", "",
			`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`,`+meta+`}}`)
		if _, data, ok := strings.Cut(body, "data: "); ok {
			body = data
		}
		var m struct{ Result, Error map[string]any }
		if err := json.NewDecoder(strings.NewReader(body)).Decode(&m); err != nil {
			t.Fatalf("%s: %q: %v", method, body, err)
		}
		if m.Error != nil {
			return m.Error
		}
		return m.Result
	}
	made := call(ingesttest.Token, "tools/call", `"name":"execute_task","arguments":{"code":"ask a b"}`, true)
	id, _ := made["taskId"].(string)
	if made["resultType"] != "task" || made["status"] != "input_required" || id == "" || made["inputRequests"] != nil {
		t.Fatalf("a task whose call waits: %v", made)
	}
	get := func(token string, elicitation bool) map[string]any {
		return call(token, "tasks/get", `"taskId":"`+id+`"`, elicitation)
	}
	for what, got := range map[string]map[string]any{
		"a client without forms":      get(ingesttest.Token, false),
		"a token that may not answer": get(ingesttest.Agent, true),
	} {
		if got["status"] != "working" || got["inputRequests"] != nil ||
			!strings.Contains(got["statusMessage"].(string), "codefleet approve "+id) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got := get(ingesttest.Other, true); got["code"] != -32602.0 {
		t.Errorf("another tenant: %v", got)
	}
	answer := func(token, key, said string) map[string]any {
		return call(token, "tasks/update",
			`"taskId":"`+id+`","inputResponses":{"`+key+`":`+said+`,"other":{"action":"accept"}}`, true)
	}
	for _, said := range []string{`{"action":"accept","content":{"decision":"approve"}}`, `{"action":"decline"}`} {
		var key string
		eventually(t, "a question", func() bool {
			open, _ := get(ingesttest.Token, true)["inputRequests"].(map[string]any)
			for k := range open {
				key = k
			}
			return len(open) == 1
		})
		if got := answer(ingesttest.Agent, key, said); got["code"] != -32600.0 {
			t.Errorf("an answer of a token that may not: %v", got)
		}
		if got := answer(ingesttest.Other, key, said); got["code"] != -32602.0 {
			t.Errorf("an answer of another tenant: %v", got)
		}
		for _, nonsense := range []string{
			`{"action":"cancel"}`, `{"action":"accept"}`,
			`{"action":"accept","content":{"decision":true}}`, `7`,
		} {
			answer(ingesttest.Token, key, nonsense)
		}
		if got := answer(ingesttest.Token, key, said); got["resultType"] != "complete" {
			t.Errorf("an answer: %v", got)
		}
	}
	eventually(t, "the result", func() bool {
		got := get(ingesttest.Token, true)
		result, _ := got["result"].(map[string]any)
		out, _ := result["structuredContent"].(map[string]any)
		return got["status"] == "completed" && out["output"] == "approved default\ndenied default\n"
	})
}
