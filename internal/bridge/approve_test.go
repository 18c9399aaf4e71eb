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

// user simulates the user of a client, who reacts to each form with the next element of reactions.
type user struct {
	mu sync.Mutex
	// reactions are the choices approve, approve_all and deny, the actions decline and cancel, and hang, which does not
	// react until the form is withdrawn.
	reactions []string
	forms     []string      // messages of the forms so far
	free      chan struct{} // closed to end a hanging reaction; may be nil
}

func (u *user) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			u.mu.Lock()
			u.forms = append(u.forms, req.Params.Message)
			reaction := "cancel"
			if len(u.reactions) > 0 {
				reaction, u.reactions = u.reactions[0], u.reactions[1:]
			}
			u.mu.Unlock()
			switch reaction {
			case "decline", "cancel":
				return &mcp.ElicitResult{Action: reaction}, nil
			case "hang":
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-u.free:
					return &mcp.ElicitResult{Action: "cancel"}, nil
				}
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": reaction}}, nil
		},
	}
}

// asked returns the number of forms so far.
func (u *user) asked() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.forms)
}

// dialAs connects a client with the given options over HTTP.
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

// revisions lists one revision of the protocol with sessions and one without.
var revisions = []string{"2025-11-25", "2026-07-28"}

// TestApproval checks that the user of a client is asked about pending calls, and that the decision takes effect.
func TestApproval(t *testing.T) {
	f := ingesttest.Start(t, 4, nil)
	url := serve(t, f, nil)
	for _, version := range revisions {
		for _, c := range []struct {
			reactions    []string
			code, output string
			asked        int
		}{
			{
				[]string{"approve", "deny", "decline"},
				"ask a<b b c",
				"approved default\ndenied default\ndenied default\n", 3,
			},
			{[]string{"approve_all"}, "ask a<b b c", "approved default\napproved default\napproved default\n", 1},
		} {
			u := &user{reactions: c.reactions}
			cs := dialAs(t, url, ingesttest.Token, version, u.options())
			got, failed := invoke(t, cs, "execute_task", map[string]any{"code": c.code})
			if failed || got["output"] != c.output || u.asked() != c.asked {
				t.Errorf("%s: %v: %v after %d forms, want %q after %d",
					version, c.reactions, got, u.asked(), c.output, c.asked)
			}
			if f := u.forms[0]; !strings.Contains(f, `crm/drop`) || !strings.Contains(f, `arguments: "a<b"`) ||
				!strings.Contains(f, "declared effects: read-only\n") {
				t.Errorf("form = %q, want the tool, its declared effects and its arguments", f)
			}
		}

		// Closing the form decides nothing. The result has the command that approves, and the next call asks again.
		for part, want := range map[string]string{"": "approved default\n", "code": "ask " + version} {
			u := &user{reactions: []string{"cancel", "approve"}}
			cs := dialAs(t, url, ingesttest.Token, version, u.options())
			got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "ask " + version, "wait_ms": 2000})
			if failed || got["status"] != "running" || got["approval"] == nil || u.asked() != 1 {
				t.Fatalf("%s: result after a closed form = %v, after %d forms, want a pending call after 1",
					version, got, u.asked())
			}
			got, _ = invoke(t, cs, "get_task", map[string]any{"task_id": got["task_id"], "part": part})
			if got["output"] != want || u.asked() != 2 {
				t.Errorf("%s: get_task(part=%q) = %v, after %d forms, want the output %q after 2",
					version, part, got, u.asked(), want)
			}
		}
	}
}

// TestApprovalWithoutAsking checks clients that cannot ask their user, or whose token may not approve. They get the
// pending call and the commands that decide it, and get_task continues once the call is decided elsewhere.
func TestApprovalWithoutAsking(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	url := serve(t, f, nil)
	fleet, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	for _, version := range revisions {
		for token, u := range map[string]*user{
			ingesttest.Token: nil,
			ingesttest.Agent: {reactions: []string{"approve"}},
		} {
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
				t.Fatalf("%s, %s: %v, want the pending call at once", version, token, got)
			}
			id := got["task_id"].(string)
			call := open[0].(map[string]any)
			command := "codefleet approve " + id + " " + call["call"].(string)
			if call["approve"] != command || call["deny"] != command+" --deny" || call["tool"] != "crm/drop" ||
				!strings.Contains(got["hint"].(string), command) || got["success"] != true {
				t.Errorf("pending call = %v, want commands that approve and deny crm/drop", got)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := fleet.Decide(t.Context(), id, client.Decision{Approve: true}); err != nil {
					t.Error(err)
				}
			})
			got, _ = invoke(t, cs, "get_task", map[string]any{"task_id": id})
			if got["output"] != "approved default\n" || got["approval"] != nil {
				t.Errorf("%s, %s: get_task = %v, want approved and no pending call", version, token, got)
			}
			wg.Wait()
			if u != nil && u.asked() > 0 {
				t.Error("the user of a token without the scope approve was asked, want no form")
			}
		}
	}
}

// TestApprovalByAnotherBridge checks that a client which disconnects while its user is asked decides nothing, and that
// another bridge asks again.
func TestApprovalByAnotherBridge(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	u := &user{reactions: []string{"hang"}, free: make(chan struct{})}
	cs, disconnect := stdio(t, options(f, ingesttest.Token), u.options())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cs.CallTool(context.WithoutCancel(t.Context()),
			&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "ask a"}})
	}()
	eventually(t, "the user is asked", func() bool { return u.asked() == 1 })
	disconnect()
	defer func() { close(u.free); <-ended }()
	again := &user{reactions: []string{"deny"}}
	cs, _ = stdio(t, options(f, ingesttest.Token), again.options())
	listed, _ := invoke(t, cs, "list_tasks", map[string]any{"status": []string{"running"}})
	id := listed["tasks"].([]any)[0].(map[string]any)["task_id"]
	if got, _ := invoke(t, cs, "get_task", map[string]any{"task_id": id}); got["output"] != "denied default\n" ||
		again.asked() != 1 {
		t.Errorf("get_task at another bridge = %v, after %d forms, want denied after 1", got, again.asked())
	}
}

// TestApprovalIsBounded checks that a call returns after MaxWait although the user does not react.
func TestApprovalIsBounded(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	u := &user{reactions: []string{"hang"}}
	const limit = 5 * time.Second
	url := serve(t, f, func(o *bridge.Options) { o.MaxWait, o.Wait = limit, 4*time.Second })
	cs := dialAs(t, url, ingesttest.Token, revisions[0], u.options()) // newer revisions return the question at once
	begun := time.Now()
	got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "ask a"})
	took := time.Since(begun)
	if failed || got["approval"] == nil || got["status"] != "running" || u.asked() != 1 || took < limit {
		t.Errorf("execute_task = %v, after %d forms and %v, want a pending call after 1 and %v", got, u.asked(), took,
			limit)
	}
}

// TestNativeApproval checks that the status of a task of the extension asks for a decision, and that tasks/update sends
// it.
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
			t.Fatalf("%s: decode %q = %v, want nil", method, body, err)
		}
		if m.Error != nil {
			return m.Error
		}
		return m.Result
	}
	made := call(ingesttest.Token, "tools/call", `"name":"execute_task","arguments":{"code":"ask a b"}`, true)
	id, _ := made["taskId"].(string)
	if made["resultType"] != "task" || made["status"] != "input_required" || id == "" || made["inputRequests"] != nil {
		t.Fatalf("tools/call = %v, want a task with the status input_required", made)
	}
	get := func(token string, elicitation bool) map[string]any {
		return call(token, "tasks/get", `"taskId":"`+id+`"`, elicitation)
	}
	for what, got := range map[string]map[string]any{
		"a client without forms":       get(ingesttest.Token, false),
		"a token that may not approve": get(ingesttest.Agent, true),
	} {
		if got["status"] != "working" || got["inputRequests"] != nil ||
			!strings.Contains(got["statusMessage"].(string), "codefleet approve "+id) {
			t.Errorf("%s: tasks/get = %v, want the status working and the command that approves", what, got)
		}
	}
	if got := get(ingesttest.Other, true); got["code"] != -32602.0 {
		t.Errorf("tasks/get by another tenant = %v, want -32602", got)
	}
	answer := func(token, key, response string) map[string]any {
		return call(token, "tasks/update",
			`"taskId":"`+id+`","inputResponses":{"`+key+`":`+response+`,"other":{"action":"accept"}}`, true)
	}
	for _, response := range []string{`{"action":"accept","content":{"decision":"approve"}}`, `{"action":"decline"}`} {
		var key string
		eventually(t, "the task asks", func() bool {
			open, _ := get(ingesttest.Token, true)["inputRequests"].(map[string]any)
			for k := range open {
				key = k
			}
			return len(open) == 1
		})
		if got := answer(ingesttest.Agent, key, response); got["code"] != -32600.0 {
			t.Errorf("tasks/update without the scope approve = %v, want -32600", got)
		}
		if got := answer(ingesttest.Other, key, response); got["code"] != -32602.0 {
			t.Errorf("tasks/update by another tenant = %v, want -32602", got)
		}
		for _, ignored := range []string{
			`{"action":"cancel"}`, `{"action":"accept"}`,
			`{"action":"accept","content":{"decision":true}}`, `7`,
		} {
			answer(ingesttest.Token, key, ignored)
		}
		if got := answer(ingesttest.Token, key, response); got["resultType"] != "complete" {
			t.Errorf("tasks/update = %v, want complete", got)
		}
	}
	eventually(t, "the task has its result", func() bool {
		got := get(ingesttest.Token, true)
		result, _ := got["result"].(map[string]any)
		out, _ := result["structuredContent"].(map[string]any)
		return got["status"] == "completed" && out["output"] == "approved default\ndenied default\n"
	})
}
