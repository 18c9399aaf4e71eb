package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// stdio connects a client to a bridge by a pair of pipes. disconnect closes them, as if the client had died.
func stdio(t *testing.T, o bridge.Options, co *mcp.ClientOptions) (cs *mcp.ClientSession, disconnect func()) {
	t.Helper()
	b := bridge.New(o)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.ServeStdio(context.WithoutCancel(t.Context()), in, out) }) // ends with the pipes
	disconnect = func() { toServer.Close(); fromServer.Close() }
	t.Cleanup(func() { b.Close(); disconnect(); wg.Wait() })
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, co)
	cs, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cs, disconnect
}

func options(f *ingesttest.Fleet, token string) bridge.Options {
	return bridge.Options{Fleet: client.Options{URL: f.URL, Token: token}}
}

// invoke calls a tool and returns the structured content of the result. It checks that the text is equal. The result of
// a call that failed before it had a task's result has only text, which invoke returns instead.
func invoke(
	t *testing.T, cs *mcp.ClientSession, tool string, args map[string]any,
) (structure map[string]any, failed bool) {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s(%v) = %v, want nil", tool, args, err)
	}
	structure, _ = r.StructuredContent.(map[string]any)
	text, _ := r.Content[0].(*mcp.TextContent)
	var fromText any
	if err := json.Unmarshal([]byte(text.Text), &fromText); err != nil {
		t.Fatalf("%s(%v): decode text %q = %v, want nil", tool, args, text.Text, err)
	}
	if r.StructuredContent == nil && r.IsError {
		structure, _ = fromText.(map[string]any)
		return structure, true
	}
	if list, ok := structure["result"].([]any); ok && len(structure) == 1 {
		if diff := cmp.Diff(any(list), fromText); diff != "" {
			t.Errorf("%s: want the bare list as text (-structure +text):\n%s", tool, diff)
		}
	} else if diff := cmp.Diff(any(structure), fromText); diff != "" {
		t.Errorf("%s: want the structured content as text (-structure +text):\n%s", tool, diff)
	}
	return structure, r.IsError
}

// TestToolsByScope checks that a client can see and call only the tools that its token permits.
func TestToolsByScope(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	submitTools := []string{
		"execute_task", "submit_task", "cancel_task", "retry_task", "save_skill", "delete_skill", "save_checkpoint",
		"save_state", "run_workflow", "answer_workflow", "cancel_workflow", "rerun_workflow", "restore_workspace",
		"redrive_tasks", "control_schedule", "add_schedule", "add_trigger", "remove_automation",
	}
	listed := map[string][]string{}
	for _, token := range []string{ingesttest.Agent, ingesttest.ReadOnly} {
		cs, _ := stdio(t, options(f, token), nil)
		l, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range l.Tools {
			listed[token] = append(listed[token], tool.Name)
		}
		if !slices.Contains(listed[token], "get_task") {
			t.Errorf("%s: get_task is not listed, want it listed", token)
		}
		if token == ingesttest.Agent {
			continue
		}
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_task"}); err == nil ||
			!strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("execute_task with the scope read = %v, want unknown tool", err)
		}
	}
	got := slices.DeleteFunc(listed[ingesttest.Agent], func(name string) bool {
		return slices.Contains(listed[ingesttest.ReadOnly], name)
	})
	slices.Sort(got)
	slices.Sort(submitTools)
	if diff := cmp.Diff(submitTools, got); diff != "" {
		t.Errorf("tools that a token with the scope read lacks (-want +got):\n%s", diff)
	}
}

// TestSizes checks the size of what a model must read before its first call: instructions and tools.
func TestSizes(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	for _, profile := range bridge.Profiles() {
		o := options(f, ingesttest.Token)
		o.Profile = profile
		cs, _ := stdio(t, o, nil)
		l, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		text := cs.InitializeResult().Instructions
		if len(text) == 0 || len(text) >= 2048 {
			t.Errorf("%s: the instructions are %d bytes, want 1 to 2047", profile, len(text))
		}
		for _, tool := range l.Tools {
			if len(tool.Description) == 0 || len(tool.Description) > 2000 || tool.Annotations == nil {
				t.Errorf("%s: %s: the description is %d bytes, want 1 to 2000; annotations %v",
					profile, tool.Name, len(tool.Description), tool.Annotations)
			}
			if profile == bridge.Full && tool.OutputSchema == nil {
				t.Errorf("%s has no output schema, want one", tool.Name)
			}
		}
		// Tokenizers take more than three bytes for each token of JSON and English.
		if tokens := (len(raw) + len(text)) / 3; profile == bridge.Compact && tokens > 1500 {
			t.Errorf("compact: tools and instructions are %d tokens, want at most 1500", tokens)
		}
	}
}

// TestShortWait checks that a call with a short wait waits that long, over HTTP, and over NATS, where the bridge may
// not watch the task.
func TestShortWait(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	overNATS, _ := stdio(t, bridge.Options{Fleet: client.Options{
		URL: f.NATS.URL(), NATSUser: ingesttest.NATSUser, NATSPassword: ingesttest.NATSPassword,
	}}, nil)
	task, _ := invoke(t, cs, "submit_task", map[string]any{"code": "block"})
	get := map[string]any{"task_id": task["task_id"], "wait_ms": 20}
	for deadline := time.Now().Add(time.Minute); ; {
		got, _ := invoke(t, cs, "get_task", get)
		if got["status"] == "running" {
			break
		}
		waits := got["status"] == "queued" || got["error_code"] == "unknown_task" // not accepted yet
		if !waits || time.Now().After(deadline) {
			t.Fatalf("get_task = %v, want a running task within a minute", got)
		}
	}
	get["wait_ms"] = 400
	for name, cs := range map[string]*mcp.ClientSession{"HTTP": cs, "NATS": overNATS} {
		begun := time.Now()
		got, failed := invoke(t, cs, "get_task", get)
		if took := time.Since(begun); failed || took < 400*time.Millisecond {
			t.Errorf("get_task over %s = %v after %v, want 400 ms", name, got, took)
		}
	}
	if got, failed := invoke(t, cs, "cancel_task", map[string]any{"task_id": task["task_id"]}); failed {
		t.Errorf("cancel_task = %v", got)
	}
}

// TestDescribedWaits checks that the descriptions of wait_ms have the settings' times.
func TestDescribedWaits(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := options(f, ingesttest.Token)
	o.Wait, o.MaxWait = 6*time.Second, 8*time.Second
	const handle = "milliseconds to wait for the end before returning a handle; default 6000, at most 8000"
	const end = "milliseconds to wait for the end; default 8000, at most 8000"
	want := map[string]map[string]string{
		bridge.Full: {
			"execute_task": handle, "get_task": end + "; 0 does not wait", "run_workflow": end, "get_workflow_run": end,
		},
		bridge.Compact: {"execute_task": "default 6000", "get_task": "default 8000"},
	}
	for _, o.Profile = range bridge.Profiles() {
		cs, _ := stdio(t, o, nil)
		l, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, tool := range l.Tools {
			in, _ := tool.InputSchema.(map[string]any)
			properties, _ := in["properties"].(map[string]any)
			if wait, ok := properties["wait_ms"].(map[string]any); ok {
				got[tool.Name], _ = wait["description"].(string)
			}
		}
		if diff := cmp.Diff(want[o.Profile], got); diff != "" {
			t.Errorf("%s: descriptions of wait_ms (-want +got):\n%s", o.Profile, diff)
		}
	}
}

// resolved returns a schema of a listed tool, to validate results with.
func resolved(t *testing.T, schema any) *jsonschema.Resolved {
	t.Helper()
	raw, _ := json.Marshal(schema)
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestResults checks the results of the task tools, and that each result conforms to its output schema.
func TestResults(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	schemas := map[string]*jsonschema.Resolved{}
	l, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range l.Tools {
		schemas[tool.Name] = resolved(t, tool.OutputSchema)
	}
	check := func(tool string, args, want map[string]any, failed bool) map[string]any {
		t.Helper()
		got, isError := invoke(t, cs, tool, args)
		if isError != failed {
			t.Errorf("%s(%v): isError %v, want %v", tool, args, isError, failed)
		}
		if err := schemas[tool].Validate(got); err != nil {
			t.Errorf("%s(%v): Validate against the output schema = %v, want nil", tool, args, err)
		}
		gotKeys := map[string]any{} // only the keys in want
		for k := range want {
			gotKeys[k] = got[k]
		}
		if diff := cmp.Diff(want, gotKeys); diff != "" {
			t.Errorf("%s(%v) (-want +got):\n%s", tool, args, diff)
		}
		return got
	}
	type m = map[string]any
	check("execute_task", m{"code": "print grüße"},
		m{"success": true, "result": nil, "output": "grüße\n", "error": nil, "status": "succeeded"}, false)
	check("execute_task", m{"task_description": "in words", "verbose": true},
		m{"success": true, "output": "in words\n"}, false)
	check("execute_task", m{"code": "fail now"},
		m{"success": false, "error": "ValueError: now (line 1)", "error_line": 1.0, "status": "failed"}, true)
	check("execute_task", m{"code": "files"}, m{"success": true, "status": "succeeded"}, false)
	block := m{"code": "block", "idempotency_key": "block", "task_description": "in words, at length"}
	id := check("submit_task", block, m{"success": true}, false)["task_id"]
	for output := ""; output == ""; { // until the task runs
		task, _ := invoke(t, cs, "get_task", m{"task_id": id, "wait_ms": 0})
		output, _ = task["output"].(string)
	}
	block["wait_ms"] = 1
	working := check("execute_task", block,
		m{"success": true, "task_id": id, "error": nil, "status": "running", "output": "blocking\n"}, false)
	if working["poll_after_ms"] == nil || !strings.Contains(working["hint"].(string), "get_task") {
		t.Errorf("the handle is %v, want a hint and poll_after_ms", working)
	}
	check("get_task", m{"task_id": id, "wait_ms": 0}, m{"status": "running", "output": "blocking\n", "stage": "run"},
		false)
	check("get_task", m{"task_id": id, "wait_ms": 0, "output_offset": 5}, m{"output": "ing\n"}, false)
	check("list_tasks", m{"status": []string{"running"}}, m{}, false)
	check("why_task", m{"task_id": id}, m{"task_id": id, "status": "running", "rule": "running"}, false)
	check("cancel_task", m{"task_id": id}, m{"success": true, "task_id": id, "cancelled": true}, false)
	check("get_task", m{"task_id": id}, m{"success": false, "status": "cancelled"}, true)
	check("cancel_task", m{"task_id": id}, m{"status": "cancelled", "cancelled": true}, false)
	list := check("list_tasks", m{"status": []string{"cancelled"}}, m{}, false)["tasks"].([]any)
	if got := list[0].(m); got["what"] != "in words, at length" || got["error"] != "the task was cancelled" {
		t.Errorf("list_tasks: the cancelled task = %v, want its description and its error", got)
	}
	key := m{"code": "print once", "idempotency_key": "k"}
	first := check("submit_task", key, m{"success": true}, false)
	again := check("execute_task", key, m{"output": "once\n"}, false)
	if first["task_id"] != again["task_id"] {
		t.Errorf("tasks with the same idempotency key are %v and %v, want one task", first["task_id"], again["task_id"])
	}
}

// TestRefusals checks the error results of invalid calls.
func TestRefusals(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	foreign, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Other})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	rec, err := foreign.Submit(t.Context(), client.Submission{Task: client.Task{Code: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	const unknown = "the task does not exist (list_tasks lists the tasks; ended tasks are kept for some days)"
	for _, c := range []struct {
		tool string
		args map[string]any
		code string
		text string
	}{
		{"execute_task", map[string]any{}, "bad_arguments", "give task_description or code"},
		{"execute_task", map[string]any{"code": 1}, "bad_arguments", "code"},
		{"execute_task", map[string]any{"kode": "1"}, "bad_arguments", "kode"},
		{"execute_task", map[string]any{"code": "1", "wait_ms": -1}, "bad_arguments", "wait_ms is negative"},
		{"execute_task", map[string]any{"code": "1", "workspace": "../x"}, "bad_name", "workspace"},
		{"get_task", map[string]any{"task_id": "aaaaaaaaaaaaaaaaaaaaaaaaaa"}, "unknown_task", unknown},
		{"get_task", map[string]any{"task_id": rec.TaskID}, "unknown_task", unknown},
		{"get_task", map[string]any{"task_id": "../fleet"}, "unknown_task", "the id of a task"},
		{"why_task", map[string]any{"task_id": rec.TaskID}, "unknown_task", unknown},
		{"cancel_task", map[string]any{"task_id": rec.TaskID}, "unknown_task", unknown},
		{
			"get_task",
			map[string]any{"task_id": rec.TaskID, "output_offset": -1},
			"bad_arguments",
			"output_offset is negative",
		},
		{"list_tasks", map[string]any{"status": []string{"done"}}, "bad_arguments", `unknown status "done": want one of`},
		{"list_tasks", map[string]any{"limit": 101}, "bad_arguments", "limit must be"},
	} {
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil || r.StructuredContent != nil {
			t.Errorf("%s(%v) = %+v, %v, want no structured content, because it would violate the output schema",
				c.tool, c.args, r, err)
		}
		got, failed := invoke(t, cs, c.tool, c.args)
		text, _ := got["error"].(string)
		if !failed || got["success"] != false || got["error_code"] != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s(%v) = %v, want the error %s with %q", c.tool, c.args, got, c.code, c.text)
		}
	}
}

// TestErrorsFit checks that an error of any tool which quotes an argument does not exceed the limit of a result, still
// says what is wrong with the argument, and has no structured content, because it would violate the output schema.
func TestErrorsFit(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	l, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\x01", 30_000)
	check := func(tool string, args map[string]any) {
		t.Helper()
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil || !r.IsError || r.StructuredContent != nil {
			t.Errorf("%s = %+v, %v, want an error result without structured content", tool, r, err)
		} else if n := len(r.Content[0].(*mcp.TextContent).Text); n > 4000 {
			t.Errorf("%s: the error is %d bytes, want at most 4000", tool, n)
		}
	}
	for _, tool := range l.Tools {
		check(tool.Name, map[string]any{"no" + long: 1})
	}
	check("search_tools", map[string]any{"query": "x", "detail_level": long})
	check("list_tasks", map[string]any{"status": []string{long}})
	check("execute_task", map[string]any{"code": "1", "workspace": long})
	check("execute_task", map[string]any{"code": map[string]any{long: long}})
	got, _ := invoke(t, cs, "execute_task", map[string]any{"code": []string{long}})
	if message, _ := got["error"].(string); !strings.HasPrefix(message, "arguments: code: ") ||
		!strings.HasSuffix(message, `want "string"`) {
		t.Errorf("execute_task with a list as code: the error is %q, want the name and the wanted type", message)
	}
	check("run_workflow", map[string]any{"workflow": map[string]any{}, "workspace": long})
	check("get_state", map[string]any{"state_file": long})
}

// eventually polls until ok reports true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(ingesttest.WaitTimeout)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("timed out after %s; want: %s", ingesttest.WaitTimeout, what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestCancelledOrDisconnected checks that a call which its client cancels cancels its task, and that the task continues
// if the client only disconnects.
func TestCancelledOrDisconnected(t *testing.T) {
	f := ingesttest.Start(t, 2, nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	running := func(key string) client.Record {
		var rec client.Record
		eventually(t, key+" runs", func() bool {
			list, err := c.List(t.Context(), client.ListOptions{Status: []client.Status{client.Running}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				if r.EventID == key {
					rec = r
				}
			}
			return rec.TaskID != ""
		})
		return rec
	}
	for _, disconnected := range []bool{false, true} {
		cs, disconnect := stdio(t, options(f, ingesttest.Token), nil)
		key := map[bool]string{false: "cancelled", true: "disconnected"}[disconnected]
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{
				Name: "execute_task", Arguments: map[string]any{"code": "block", "idempotency_key": key},
			})
			if err == nil {
				t.Errorf("%s: CallTool = nil, want an error", key)
			}
		})
		rec := running(key)
		if disconnected {
			disconnect()
		} else {
			cancel()
		}
		wg.Wait()
		cancel()
		if disconnected {
			rec, err = c.WaitFor(t.Context(), rec.TaskID, 300*time.Millisecond)
			if err != nil || rec.Status != client.Running || rec.CancelRequested {
				t.Errorf("task of a disconnected client: %s, %v, want running", rec.Status, err)
			}
			if _, err := c.Cancel(t.Context(), rec.TaskID); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ended, err := c.Wait(t.Context(), rec.TaskID)
		if err != nil || ended.Status != client.Cancelled {
			t.Errorf("task of a cancelled call: %s, %v, want cancelled", ended.Status, err)
		}
	}
}

// TestProgress checks that a client with a progress token receives a notification of every step, with increasing
// numbers.
func TestProgress(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	received := make(chan *mcp.ProgressNotificationParams, 10)
	cs, _ := stdio(t, options(f, ingesttest.Token), &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			received <- r.Params
		},
	})
	p := &mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "call"}, Meta: mcp.Meta{}}
	p.SetProgressToken("token")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // the program does not end
	ended := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, p)
		ended <- err
	}()
	var last float64
	for _, want := range []string{"run", "tool: wiki/export: 1 of 3: page 1", "blocking"} {
		var got *mcp.ProgressNotificationParams
		select {
		case got = <-received:
		case err := <-ended:
			t.Fatalf("the call ended before the progress %q: %v", want, err)
		}
		if got.Message != want || got.Progress <= last || got.ProgressToken != "token" {
			t.Errorf("progress %+v after %v, want %q", got, last, want)
		}
		last = got.Progress
	}
}

// TestLinks checks that results link to artifacts and to output that is too long, and that the links can be read.
func TestLinks(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	o := options(f, ingesttest.Token)
	o.MaxOutput = 4000
	cs, _ := stdio(t, o, nil)
	long := strings.Repeat("ü", 3000)
	r, err := cs.CallTool(t.Context(),
		&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "print " + long}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := r.StructuredContent.(map[string]any)
	output, _ := got["output"].(string)
	if len(output) < 3000 || got["truncated"] != true || got["next_output_offset"] != float64(len(output)) {
		t.Errorf("output of %d bytes, truncated %v, next %v, want at least 3000, truncated, and the offset after them",
			len(output), got["truncated"], got["next_output_offset"])
	}
	more, _ := invoke(t, cs, "get_task", map[string]any{"task_id": got["task_id"], "output_offset": len(output)})
	if output+more["output"].(string) != long+"\n" || more["truncated"] != false {
		t.Errorf("rest of the output: %d bytes, truncated %v, want the rest, not truncated",
			len(more["output"].(string)), more["truncated"])
	}
	link, ok := r.Content[1].(*mcp.ResourceLink)
	if !ok || *link.Size != 6001 {
		t.Fatalf("second content %+v, want a link to 6001 bytes", r.Content[1])
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
	if err != nil || read.Contents[0].Text != long+"\n" {
		t.Errorf("ReadResource(%s) = %+v, %v, want the whole output", link.URI, read, err)
	}

	files, _ := invoke(t, cs, "execute_task", map[string]any{"code": "files"})
	uris := map[string]string{}
	for _, a := range files["artifacts"].([]any) {
		uris[a.(map[string]any)["path"].(string)] = a.(map[string]any)["uri"].(string)
	}
	read, err = cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uris["out/a.csv"]})
	if err != nil || read.Contents[0].Text != "1,2\n" || read.Contents[0].MIMEType != "text/csv" {
		t.Errorf("artifact = %+v, %v; want 1,2 as text/csv", read, err)
	}
	for _, uri := range []string{
		uris["gone.txt"], "codefleet://tasks/aaaaaaaaaaaaaaaaaaaaaaaaaa/output", "codefleet://tasks/../v1/fleet",
		"codefleet://other/" + files["task_id"].(string) + "/output", "codefleet://tasks/" +
			files["task_id"].(string) + "/artifacts/../../../fleet",
	} {
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("ReadResource(%s) = nil, want an error", uri)
		}
	}
}

// TestFleetNotStarted checks the results that an agent gets if the fleet does not respond, or refuses the token.
func TestFleetNotStarted(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	cs, _ := stdio(t, bridge.Options{Fleet: client.Options{URL: srv.URL, RetryFor: -1}}, nil)
	got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "1"})
	if text, _ := got["error"].(string); !failed || got["error_code"] != "unavailable" ||
		!strings.Contains(text, "connection refused") {
		t.Errorf("execute_task = %v, want connection refused", got)
	}
	f := ingesttest.Start(t, 0, nil)
	b := bridge.New(options(f, "wrong"))
	err := b.ServeStdio(t.Context(), io.NopCloser(strings.NewReader("")), nil)
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "unauthorized" {
		t.Errorf("ServeStdio with a wrong token = %v, want unauthorized", err)
	}
}

// TestWaitsForFleet starts a bridge before its fleet, stops the fleet, and starts it at another address. The calls
// meanwhile fail at once, those after that succeed.
func TestWaitsForFleet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.json")
	o, err := bridge.Locate(file)
	if err != nil {
		t.Fatal(err)
	}
	cs, _ := stdio(t, bridge.Options{Fleet: o}, nil)
	fails := func(when string, limit time.Duration) {
		t.Helper()
		start := time.Now()
		got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "1"})
		if took := time.Since(start); !failed || got["error_code"] != "unavailable" || took > limit {
			t.Errorf("execute_task %s = %v after %v, want unavailable within %v", when, got, took, limit)
		}
	}
	fails("before the fleet has started", 3*time.Second)
	for _, when := range []string{"once the fleet has started", "once it has started again"} {
		f := ingesttest.Start(t, 1, nil)
		data, err := json.Marshal(client.FleetFile{URL: f.URL, Token: ingesttest.Token})
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, failed := invoke(t, cs, "execute_task", map[string]any{"code": "1"}); failed {
			t.Errorf("execute_task %s = %v, want success", when, got)
		}
		f.HTTP.Close()
		fails("when the fleet has just stopped", 10*time.Second) // the bridge retries the request
		fails("while the fleet is stopped", 3*time.Second)
	}
}

// TestWaitEndsWithWrongToken starts a bridge before its fleet, which refuses the bridge's token.
func TestWaitEndsWithWrongToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.json")
	o, err := bridge.Locate(file)
	if err != nil {
		t.Fatal(err)
	}
	b := bridge.New(bridge.Options{Fleet: o})
	defer b.Close()
	in, toServer := io.Pipe()
	defer toServer.Close()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.ServeStdio(t.Context(), in, out) }()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	f := ingesttest.Start(t, 0, nil)
	data, err := json.Marshal(client.FleetFile{URL: f.URL, Token: "wrong"})
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = <-ended
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "unauthorized" {
		t.Errorf("ServeStdio = %v, want unauthorized", err)
	}
}

// TestImages checks that small images, of artifacts and of tools, reach the model as content, and that other files do
// not.
func TestImages(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shot := ingesttest.PNG + "of a tool"
	_, err = c.Workspace("main").Put(t.Context(), "tool-results/shot.png", strings.NewReader(shot), "")
	if err != nil {
		t.Fatal(err)
	}
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	r, err := cs.CallTool(t.Context(),
		&mcp.CallToolParams{Name: "execute_task", Arguments: map[string]any{"code": "image"}})
	if err != nil || r.IsError {
		t.Fatalf("execute_task = %+v, %v; want no error", r, err)
	}
	var images []string
	for _, content := range r.Content {
		if image, ok := content.(*mcp.ImageContent); ok {
			images = append(images, image.MIMEType+" "+string(image.Data))
		}
	}
	if diff := cmp.Diff([]string{"image/png " + ingesttest.PNG, "image/png " + shot}, images); diff != "" {
		t.Errorf("images of the result (-want +got):\n%s", diff)
	}
}

// TestTaskListFits checks that a list of tasks does not exceed the limit of a result.
func TestTaskListFits(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := options(f, ingesttest.Token)
	o.MaxOutput = 4000
	cs, _ := stdio(t, o, nil)
	for range 30 {
		invoke(t, cs, "submit_task", map[string]any{"task_description": strings.Repeat("long ", 50)})
	}
	r, err := cs.CallTool(t.Context(),
		&mcp.CallToolParams{Name: "list_tasks", Arguments: map[string]any{"limit": 100}})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	got, _ := r.StructuredContent.(map[string]any)
	if n := len(text.Text); n > 4000 || n < 2000 || got["truncated"] != true {
		t.Errorf("list_tasks: %d bytes, truncated %v, want at most 4000", n, got["truncated"])
	}
}

// TestCancelledTaskIsDescribed checks that the list says what a program would have done that was cancelled in the
// queue.
func TestCancelledTaskIsDescribed(t *testing.T) {
	f := ingesttest.Start(t, 0, nil) // no worker: the task stays queued
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	task, _ := invoke(t, cs, "submit_task", map[string]any{"code": "import json\n\nprint(json.dumps(1))"})
	invoke(t, cs, "cancel_task", map[string]any{"task_id": task["task_id"]})
	list, _ := invoke(t, cs, "list_tasks", nil)
	got, _ := list["tasks"].([]any)[0].(map[string]any)
	if got["status"] != "cancelled" || got["what"] != "print(json.dumps(1))" ||
		got["error"] != "the task was cancelled" {
		t.Errorf("list_tasks: the cancelled task = %v, want its first statement", got)
	}
}

// TestLargeTaskFits checks that a task whose parts are all too long fits into a result, which names the parts, and that
// get_task and the links return each part.
func TestLargeTaskFits(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	for _, limit := range []int{4000, 20_000} {
		o := options(f, ingesttest.Token)
		o.MaxOutput = limit
		cs, _ := stdio(t, o, nil)
		call := func(tool string, args map[string]any) (map[string]any, []mcp.Content) {
			r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(r.Content[0].(*mcp.TextContent).Text); n > limit {
				t.Errorf("%s(%v): %d bytes, want at most %d", tool, args, n, limit)
			}
			got, _ := r.StructuredContent.(map[string]any)
			return got, r.Content
		}
		got, content := call("execute_task", map[string]any{"code": "large", "verbose": true})
		want := []any{"error", "stderr", "artifacts", "findings", "changes", "code", "result", "output"}
		if d := cmp.Diff(want, got["incomplete"]); d != "" || got["truncated"] != true || got["error_line"] != 1.0 {
			t.Errorf("%d bytes: incomplete parts (-want +got):\n%s", limit, d)
		}
		for i, part := range want {
			link, _ := content[1+i].(*mcp.ResourceLink)
			read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
			if err != nil || int64(len(read.Contents[0].Text)) != *link.Size || link.Name != part {
				t.Fatalf("ReadResource(%s) = %v, want %d bytes", link.URI, err, *link.Size)
			}
			args := map[string]any{"task_id": got["task_id"], "part": part, "output_offset": *link.Size - 5000}
			var text strings.Builder
			for args["output_offset"] != nil {
				piece, _ := call("get_task", args)
				text.WriteString(piece["output"].(string))
				args["output_offset"] = piece["next_output_offset"]
			}
			if whole := read.Contents[0].Text; text.Len() < 5000 || !strings.HasSuffix(whole, text.String()) {
				t.Errorf("get_task(part %s): %d bytes, want the last 5000", part, text.Len())
			}
		}
	}
}

// TestStateFits checks that a state document fits into a result, and that path and offset return all of it.
func TestStateFits(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	o := options(f, ingesttest.Token)
	o.MaxOutput = 4000
	cs, _ := stdio(t, o, nil)
	get := func(args map[string]any) map[string]any {
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_state", Arguments: args})
		if err != nil || r.IsError {
			t.Fatalf("get_state(%v) = %+v, %v; want no error", args, r, err)
		}
		if n := len(r.Content[0].(*mcp.TextContent).Text); n > 4000 {
			t.Errorf("get_state(%v): %d bytes, want at most 4000", args, n)
		}
		got, _ := r.StructuredContent.(map[string]any)
		return got
	}
	each := func(path string, use func(got map[string]any)) { // use all results for a path
		for args := map[string]any{"path": path}; ; {
			got := get(args)
			use(got)
			if args["offset"] = got["next_offset"]; args["offset"] == nil {
				return
			}
		}
	}
	join := func(path string) string {
		var s strings.Builder
		each(path, func(got map[string]any) { s.WriteString(got["data"].(string)) })
		return s.String()
	}
	list := make([]any, 500)
	for i := range list {
		list[i] = map[string]any{"id": float64(i), "name": strings.Repeat("n", i%40)}
	}
	list[7] = strings.Repeat("\x01", 1000)
	text := strings.Repeat("ü\n", 5000)
	members := map[string]any{"a": "short", "b/~": list, "c": 5.0, "text": text}
	for i := range 300 {
		members["m"+strings.Repeat("m", i%30)+string(rune('A'+i%26))] = float64(i)
	}
	if _, failed := invoke(t, cs, "save_state", map[string]any{"state_data": members}); failed {
		t.Fatal("save_state failed, want success")
	}

	top := map[string]any{}
	var omitted []any
	each("", func(got map[string]any) {
		maps.Copy(top, got["data"].(map[string]any))
		parts, _ := got["omitted"].([]any)
		omitted = append(omitted, parts...)
		if hint, _ := got["hint"].(string); got["truncated"] != true || !strings.Contains(hint, "do not save") {
			t.Errorf("truncated %v, hint %q, want a warning", got["truncated"], hint)
		}
	})
	var items []any
	each("/b~1~0", func(got map[string]any) { items = append(items, got["data"].([]any)...) })
	if items[7] != nil {
		t.Errorf("the long item = %v, want null", items[7])
	}
	items[7] = join("/b~1~0/7")
	top["b/~"], top["text"] = items, join("/text")
	if d := cmp.Diff(members, top); d != "" {
		t.Errorf("the parts of the document (-want +got):\n%s", d)
	}
	if len(omitted) != 2 || omitted[0].(map[string]any)["path"] != "/b~1~0" {
		t.Errorf("omitted = %v, want the list and the text", omitted)
	}
	if got := get(map[string]any{"path": "/b~1~0/3/id"}); got["data"] != 3.0 || got["truncated"] != nil {
		t.Errorf("get_state of one number = %v, want 3", got)
	}
	for _, args := range []map[string]any{
		{"path": "b"},
		{"path": "/b"},
		{"path": "/b~1~0/500"},
		{"path": "/b~1~0/-1"},
		{"path": "/c/x"},
		{"offset": -1},
		{"path": "/c", "offset": 1},
	} {
		if got, failed := invoke(t, cs, "get_state", args); !failed || got["error_code"] != "bad_arguments" {
			t.Errorf("get_state(%v) = %v, want bad_arguments", args, got)
		}
	}
}
