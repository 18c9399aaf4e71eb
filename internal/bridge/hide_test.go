package bridge_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestPrivacy checks that no value reaches a client if the fleet demands that: neither in results, resources,
// prompts and errors, nor in progress messages.
func TestPrivacy(t *testing.T) {
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
		o.Access.Privacy = func(tenant string) string { return map[string]string{"default": "egress"}[tenant] }
	})
	o := options(f, ingesttest.Token)
	o.Privacy = func(tenant, mode string) func(context.Context, string) string {
		if tenant != "default" || mode != "egress" {
			t.Errorf("Privacy(%q, %q), want default and egress, which the fleet reports", tenant, mode)
		}
		return func(_ context.Context, text string) string { return strings.ReplaceAll(text, "ada", "[X]") }
	}
	received := make(chan string, 100)
	cs, _ := stdio(t, o, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			received <- r.Params.Message
		},
	})
	for _, code := range []string{"print ada", "fail ada"} {
		params := &mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": code}}
		params.SetProgressToken("p")
		r, err := cs.CallTool(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := json.Marshal(r); strings.Contains(string(data), "ada") {
			t.Errorf("execute_task(%s) = %s, want no value", code, data)
		}
		structure, _ := r.StructuredContent.(map[string]any)
		id, _ := structure["task_id"].(string)
		read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "codefleet://tasks/" + id + "/code"})
		if err != nil || !strings.Contains(read.Contents[0].Text, "[X]") {
			t.Errorf("code of %s = %v, %v, want it with the token", code, read, err)
		}
	}
	if got, failed := invoke(t, cs, "save_skill", map[string]any{
		"name": "greet", "description": "Greets ada.", "code": "def run():\n    return 'ada'\n",
	}); failed {
		t.Fatalf("save_skill = %v, want nil", got)
	}
	prompts, err := cs.ListPrompts(t.Context(), nil)
	if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Description != "Greets [X]." {
		t.Errorf("prompts = %+v, %v, want one with the token", prompts, err)
	}
	prompt, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(prompt)
	if strings.Contains(string(data), "ada") || !strings.Contains(string(data), "[X]") {
		t.Errorf("prompt = %s, want it with the token", data)
	}
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "tool-of-ada"})
	if err == nil || strings.Contains(err.Error(), "ada") {
		t.Errorf("tools/call of an unknown tool = %v, want an error without the value", err)
	}
	task, _ := invoke(t, cs, "submit_task", map[string]any{"code": "call ada"})
	arguments := map[string]any{"task_id": task["task_id"], "wait_ms": 500}
	params := &mcp.CallToolParams{Name: "get_task", Arguments: arguments}
	params.SetProgressToken("p")
	ctx, cancel := context.WithTimeout(t.Context(), ingesttest.WaitTimeout)
	defer cancel()
	missing := map[string]bool{"tool: wiki/export: 1 of 3: page 1 [X]": true, "blocking [X]": true}
	for len(missing) > 0 {
		if _, err := cs.CallTool(ctx, params); err != nil {
			t.Fatalf("get_task: %v; progress lacks %v", err, missing)
		}
		for len(received) > 0 {
			message := <-received
			if delete(missing, message); strings.Contains(message, "ada") {
				t.Errorf("progress %q, want no value", message)
			}
		}
	}
	invoke(t, cs, "cancel_task", map[string]any{"task_id": task["task_id"]})
}

// TestPrivacyIsDemandedLater checks that a connected client gets no more values once the fleet demands that.
func TestPrivacyIsDemandedLater(t *testing.T) {
	var mode atomic.Value
	mode.Store("")
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) {
		o.Access.Privacy = func(string) string { return mode.Load().(string) }
	})
	o := options(f, ingesttest.Token)
	o.Recheck = time.Nanosecond
	o.Privacy = func(_, mode string) func(context.Context, string) string {
		if mode == "" {
			return nil
		}
		return func(_ context.Context, text string) string { return strings.ReplaceAll(text, "ada", "[X]") }
	}
	cs, _ := stdio(t, o, nil)
	for _, c := range []struct{ mode, want string }{{"", "ada\n"}, {"egress", "[X]\n"}} {
		mode.Store(c.mode)
		got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "print ada"})
		if failed || got["output"] != c.want {
			t.Errorf("execute_task while the fleet's mode is %q = %v, want the output %q", c.mode, got, c.want)
		}
	}
}

// TestPrivacyOfPieces checks that values are found before a text is cut, so that no offset and no path shows a part of
// one, or a number without the name that announces it.
func TestPrivacyOfPieces(t *testing.T) {
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
		o.Access.Privacy = func(string) string { return "egress" }
	})
	o := options(f, ingesttest.Token)
	o.MaxOutput = 5000
	o.Privacy = func(string, string) func(context.Context, string) string {
		r := strings.NewReplacer("536-90-4399", "[S]", `"ssn":536904399`, `"ssn":"[S]"`, `"ssn": 536904399`, `"ssn": "[S]"`)
		return func(_ context.Context, text string) string { return r.Replace(text) }
	}
	received := make(chan string, 100)
	cs, _ := stdio(t, o, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			received <- r.Params.Message
		},
	})
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	long := "é" + strings.Repeat("x", o.MaxOutput-157) + "536-90-4399" + strings.Repeat("y", 500)
	for name, text := range map[string]string{
		"a.txt": "ssn 536-90-4399 and more\n", "long.txt": long, "large.txt": strings.Repeat("x", 4<<20+1),
		strings.Repeat("x", 87) + "536-90-4399": "", // the message of the commit is cut within the value
	} {
		if _, err := c.Workspace("main").Put(t.Context(), name, strings.NewReader(text), ""); err != nil {
			t.Fatal(err)
		}
	}
	if got, failed := invoke(t, cs, "save_state", map[string]any{
		"state_data": map[string]any{
			"ssn": 536904399, "note": "536-90-4399", "list": []any{map[string]any{"ssn": 536904399}},
		},
	}); failed {
		t.Fatalf("save_state = %v, want nil", got)
	}
	task, failed := invoke(t, cs, "execute_task", map[string]any{"code": "print 536-90-4399 and more"})
	if failed {
		t.Fatalf("execute_task = %v, want success", task)
	}
	type args = map[string]any
	id := task["task_id"]
	calls := []*mcp.CallToolParams{
		{Name: "list_tasks", Arguments: args{}},
		{Name: "list_commits", Arguments: args{}},
		{Name: "get_session", Arguments: args{"session": "s"}},
	}
	for _, x := range []int{85, 384, 392} { // summaries, progress and texts of sessions are cut within the value
		params := &mcp.CallToolParams{Name: "execute_task", Arguments: args{
			"code": "print " + strings.Repeat("x", x) + "536-90-4399", "session": "s",
		}}
		params.SetProgressToken("p")
		calls = append([]*mcp.CallToolParams{params}, calls...)
	}
	for offset := range 18 {
		calls = append(calls,
			&mcp.CallToolParams{Name: "read_file", Arguments: args{"path": "a.txt", "offset": offset}},
			&mcp.CallToolParams{Name: "get_state", Arguments: args{"path": "/note", "offset": offset}},
			&mcp.CallToolParams{Name: "get_task", Arguments: args{"task_id": id, "output_offset": offset}},
			&mcp.CallToolParams{Name: "get_task", Arguments: args{
				"task_id": id, "part": "code", "output_offset": offset,
			}},
			&mcp.CallToolParams{Name: "get_task", Arguments: args{
				"task_id": id, "part": "output", "output_offset": offset,
			}},
		)
	}
	for _, path := range []string{"", "/ssn", "/list/0", "/list/0/ssn"} {
		calls = append(calls, &mcp.CallToolParams{Name: "get_state", Arguments: args{"path": path}})
	}
	for _, call := range calls {
		r, err := cs.CallTool(t.Context(), call)
		if err != nil || r.IsError {
			t.Fatalf("%s(%v) = %v, %v, want a result", call.Name, call.Arguments, r, err)
		}
		part := "99"
		if strings.HasPrefix(call.Name, "list_") || call.Name == "execute_task" || call.Name == "get_session" {
			part = "536-" // the result has times, too
		}
		if data, _ := json.Marshal(r.Content); strings.Contains(string(data), part) {
			t.Errorf("%s(%v) = %s, want no part of the value", call.Name, call.Arguments, data)
		}
	}

	for len(received) > 0 {
		if message := <-received; strings.Contains(message, "536-") {
			t.Errorf("progress %q, want no part of the value", message)
		}
	}
	if got, failed := invoke(t, cs, "save_skill", args{
		"name": "long", "description": "Returns values.",
		"code": "def run():\n    return '" + strings.Repeat("536-90-4399", 2000) + "'\n",
	}); failed {
		t.Fatalf("save_skill = %v, want nil", got)
	}
	got, _ := invoke(t, cs, "get_skill", args{"name": "long"})
	if shown, _ := got["code"].(string); strings.Contains(shown, "5") || len(shown) < 1500 {
		t.Errorf("get_skill shows %q, want as many tokens as fit", shown)
	}

	// Pages of a file are joined to the file with tokens. Byte 1 is within the first character.
	hidden := strings.ReplaceAll(long, "536-90-4399", "[S]")
	for begin, want := range []string{hidden, strings.TrimPrefix(hidden, "é")} {
		var joined string
		for offset := any(begin); offset != nil; {
			got, failed := invoke(t, cs, "read_file", args{"path": "long.txt", "offset": offset})
			if failed {
				t.Fatalf("read_file(long.txt, %v) = %v, want text", offset, got)
			}
			page, _ := got["text"].(string)
			joined, offset = joined+page, got["next_offset"]
		}
		if joined != want {
			t.Errorf("pages of long.txt from byte %d have %d bytes, want %d with the token", begin, len(joined),
				len(want))
		}
	}
	if got, failed := invoke(t, cs, "read_file", args{"path": "large.txt"}); !failed {
		t.Errorf("read_file(large.txt) = %v, want an error: it is too large to search", got["path"])
	}
}
