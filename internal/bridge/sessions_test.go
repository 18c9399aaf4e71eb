package bridge_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestSessions checks that an MCP client can find a session, resume it and set its checkpoint, and that another tenant
// cannot.
func TestSessions(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	if got, failed := invoke(t, cs, "list_sessions", nil); failed || len(got["sessions"].([]any)) != 0 {
		t.Errorf("list_sessions = %v, want none", got)
	}
	refused := func(want, tool string, args map[string]any) {
		t.Helper()
		if got, failed := invoke(t, cs, tool, args); !failed || got["error_code"] != want {
			t.Errorf("%s(%v) = %v, want %s", tool, args, got, want)
		}
	}
	refused("unknown_session", "get_session", map[string]any{"session": "session_001"})
	refused("unknown_session", "save_checkpoint", map[string]any{"session": "session_001", "data": map[string]any{}})
	for i := range 3 {
		invoke(t, cs, "execute_task", map[string]any{
			"code": "print " + strconv.Itoa(i), "session": "session_001", "workspace": "lab",
		})
	}
	first, failed := invoke(t, cs, "save_checkpoint", map[string]any{
		"session": "session_001", "data": map[string]any{"step": 1, "context": "half"},
	})
	if failed {
		t.Fatalf("save_checkpoint = %v, want success", first)
	}
	invoke(t, cs, "save_checkpoint", map[string]any{"session": "session_001", "data": map[string]any{"step": 2}})

	again, _ := stdio(t, options(f, ingesttest.Token), nil) // another process goes on
	got, _ := invoke(t, again, "get_session", map[string]any{"session": "session_001", "limit": 2})
	tasks, _ := got["tasks"].([]any)
	if len(tasks) != 2 || got["tasks_omitted"] != 1.0 || got["workspace"] != "lab" {
		t.Fatalf("get_session = %v, want two of three tasks in the workspace lab", got)
	}
	last, _ := tasks[1].(map[string]any)
	if last["code"] != "print 2" || last["output"] != "2\n" || last["status"] != "succeeded" {
		t.Errorf("last task = %v, want print 2", last)
	}
	if point, _ := got["checkpoint"].(map[string]any); point["step"] != 2.0 {
		t.Errorf("checkpoint = %v, want step 2", point)
	}
	back := map[string]any{"session": "session_001", "checkpoint_id": first["checkpoint_id"]}
	if got, failed := invoke(t, again, "save_checkpoint", back); failed {
		t.Errorf("save_checkpoint(%v) = %v, want success", back, got)
	}
	got, _ = invoke(t, cs, "get_session", map[string]any{"session": "session_001"})
	point, _ := got["checkpoint"].(map[string]any)
	if point["step"] != 1.0 || point["context"] != "half" || len(got["checkpoints"].([]any)) != 3 {
		t.Errorf("after going back = %v, want step 1 as the third checkpoint", got)
	}
	got, _ = invoke(t, cs, "list_sessions", map[string]any{"limit": 5})
	list, _ := got["sessions"].([]any)
	if s, _ := list[0].(map[string]any); len(list) != 1 || s["tasks"] != 3.0 || s["checkpoint_id"] != point["id"] {
		t.Errorf("list_sessions = %v, want one session with three tasks", list)
	}

	theirs, _ := stdio(t, options(f, ingesttest.Other), nil)
	if got, failed := invoke(t, theirs, "get_session", map[string]any{"session": "session_001"}); !failed {
		t.Errorf("get_session of another tenant = %v, want an error", got)
	}
	refused("bad_name", "get_session", map[string]any{"session": "../x"})
	refused("bad_arguments", "get_session", map[string]any{"session": "session_001", "limit": 101})
	refused("bad_arguments", "list_sessions", map[string]any{"limit": -1})
	refused("bad_arguments", "save_checkpoint", map[string]any{"session": "session_001"})
	refused("bad_data", "save_checkpoint", map[string]any{"session": "session_001", "data": []int{1}})
	refused("unknown_checkpoint", "save_checkpoint", map[string]any{"session": "session_001", "checkpoint_id": 1})
}

// TestSessionFits checks that a session with long texts and a long checkpoint fits into a result.
func TestSessionFits(t *testing.T) {
	const limit = 4000
	f := ingesttest.Start(t, 1, nil)
	o := options(f, ingesttest.Token)
	o.MaxOutput = limit
	cs, _ := stdio(t, o, nil)
	for i := range 6 {
		invoke(t, cs, "execute_task", map[string]any{
			"code": "print " + strconv.Itoa(i) + strings.Repeat("\x01é", 2000), "session": "long",
		})
	}
	for _, size := range []int{100, 10_000} {
		invoke(t, cs, "save_checkpoint", map[string]any{
			"session": "long", "data": map[string]any{"text": strings.Repeat("x", size)},
		})
		r, err := cs.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "get_session", Arguments: map[string]any{"session": "long"}})
		if err != nil || r.IsError {
			t.Fatalf("get_session = %+v, %v; want no error", r, err)
		}
		text := r.Content[0].(*mcp.TextContent).Text
		var got struct {
			Checkpoint   map[string]any
			Tasks        []struct{ Code string }
			TasksOmitted int `json:"tasks_omitted"`
			Hint         string
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		n := len(got.Tasks)
		if len(text) > limit || n == 0 || n+got.TasksOmitted != 6 ||
			!strings.HasPrefix(got.Tasks[n-1].Code, "print 5") {
			t.Errorf("get_session: %d bytes, %d tasks, %d omitted; want the newest of 6 in %d bytes",
				len(text), n, got.TasksOmitted, limit)
		}
		if (got.Checkpoint == nil) != (size > limit) || strings.Contains(got.Hint, "resume()") != (size > limit) {
			t.Errorf("checkpoint of %d bytes = %v, hint %q; want it only if it fits", size, got.Checkpoint, got.Hint)
		}
	}
}
