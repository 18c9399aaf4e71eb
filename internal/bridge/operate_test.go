package bridge_test

import (
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/schemas"
)

// TestOperate calls the tools that do what the web page does, and checks that results conform to their schemas.
func TestOperate(t *testing.T) {
	f := ingesttest.Start(t, 1, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	l, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]*jsonschema.Resolved{}
	for _, tool := range l.Tools {
		outputs[tool.Name] = resolved(t, tool.OutputSchema)
	}
	call := func(name string, args map[string]any) map[string]any {
		t.Helper()
		got, failed := invoke(t, cs, name, args)
		if failed {
			t.Fatalf("%s(%v) = %v, want no error", name, args, got)
		}
		if err := outputs[name].Validate(got); err != nil {
			t.Errorf("%s(%v) = %v: %v", name, args, got, err)
		}
		return got
	}
	items := func(name string, args map[string]any, want int) []any {
		t.Helper()
		list, _ := call(name, args)["items"].([]any)
		if len(list) != want {
			t.Fatalf("%s(%v) = %v, want %d items", name, args, list, want)
		}
		return list
	}
	refused := func(code, name string, args map[string]any) {
		t.Helper()
		if got, failed := invoke(t, cs, name, args); !failed || got["error_code"] != code {
			t.Errorf("%s(%v) = %v, want %s", name, args, got, code)
		}
	}
	type m = map[string]any

	dead, _ := invoke(t, cs, "execute_task", m{"code": "die"})
	letters := items("list_dead_tasks", nil, 1)
	letter, _ := letters[0].(map[string]any)
	if letter["task_id"] != dead["task_id"] || letter["cause"] == "" {
		t.Errorf("list_dead_tasks = %v, want the task %v and its cause", letter, dead["task_id"])
	}
	if got := call("redrive_tasks", m{"cause": letter["cause"]}); got["redriven"] != 1.0 || got["refused"] != 0.0 {
		t.Errorf("redrive_tasks = %v, want 1 redriven", got)
	}
	refused("bad_arguments", "redrive_tasks", m{})
	refused("bad_arguments", "redrive_tasks", m{"cause": ""})

	id := dead["task_id"].(string)
	for _, event := range []string{schemas.AuditBegin, schemas.AuditEnd} {
		if err := f.Jobs.AppendAudit(t.Context(), schemas.AuditRecord{
			Event: event, TaskID: id, Tenant: "default", Server: "crm", Tool: "drop", OK: true, ArgsBytes: 7,
		}); err != nil {
			t.Fatal(err)
		}
	}
	made, _ := items("list_tool_calls", m{"task_id": id}, 1)[0].(map[string]any)
	if made["tool"] != "crm/drop" || made["args_bytes"] != 7.0 || made["ok"] != true {
		t.Errorf("list_tool_calls = %v, want the call of crm/drop", made)
	}
	refused("unknown_task", "list_tool_calls", m{"task_id": "aaaaaaaaaaaaaaaaaaaaaaaaaa"})

	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"one\n", "twö\n"} {
		if _, err := c.Workspace("main").Put(t.Context(), "a.txt", strings.NewReader(text), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Workspace("main").Put(t.Context(), "b.bin", strings.NewReader("\xff\x00"), ""); err != nil {
		t.Fatal(err)
	}
	items("list_workspaces", nil, 1)
	items("list_files", m{}, 2)
	items("list_files", m{"generation": "1"}, 1)
	items("list_commits", m{"limit": 2}, 2)
	items("diff_workspace", m{"from": "1", "to": "3"}, 2)
	got := call("read_file", m{"path": "a.txt", "generation": "1"})
	if got["text"] != "one\n" || got["next_offset"] != nil {
		t.Errorf("read_file = %v, want one", got)
	}
	for offset, want := range map[int]string{1: "wö\n", 3: "\n", 5: "", 9: ""} { // byte 3 is within the ö
		if got := call("read_file", m{"path": "a.txt", "offset": offset}); got["text"] != want {
			t.Errorf("read_file from byte %d = %v, want %q", offset, got, want)
		}
	}
	refused("bad_arguments", "read_file", m{"path": "b.bin"})
	refused("bad_arguments", "read_file", m{"path": "a.txt", "offset": -1})
	refused("unknown_file", "read_file", m{"path": "c"})
	if got := call("restore_workspace", m{"generation": "1"}); got["generation"] != 4.0 {
		t.Errorf("restore_workspace = %v, want generation 4", got)
	}
	refused("unknown_version", "restore_workspace", m{"generation": "99"})

	definition := m{"name": "nap", "steps": []any{m{"id": "a", "wait": m{"for": "1h"}}}}
	run := call("run_workflow", m{"workflow": definition})["run_id"]
	items("list_workflow_runs", nil, 1)
	refused("run_active", "rerun_workflow", m{"run_id": run, "step": "a"})
	if got := call("cancel_workflow", m{"run_id": run}); got["run_id"] != run {
		t.Errorf("cancel_workflow = %v, want the run", got)
	}
	if got := call("get_workflow_run", m{"run_id": run}); got["status"] != "cancelled" {
		t.Errorf("the run is %v, want cancelled", got["status"])
	}
	if got := call("rerun_workflow", m{"run_id": run, "step": "a"}); got["run_id"] == run {
		t.Errorf("rerun_workflow = %v, want a new run", got)
	}

	if _, err := c.AddSchedule(t.Context(), client.ScheduleSpec{Name: "nightly", Cron: "0 3 * * *"},
		client.Submission{Task: client.Task{Code: "print 1"}}); err != nil {
		t.Fatal(err)
	}
	if got := call("control_schedule", m{"name": "nightly", "action": "pause"}); got["paused"] != true {
		t.Errorf("pause = %v, want paused", got)
	}
	if got := call("list_automation", nil)["schedules"].([]any); len(got) != 1 || got[0].(m)["paused"] != true {
		t.Errorf("list_automation = %v, want the paused schedule", got)
	}
	if got := call("control_schedule", m{"name": "nightly", "action": "resume"}); got["paused"] != false {
		t.Errorf("resume = %v, want not paused", got)
	}
	if got := call("control_schedule", m{"name": "nightly", "action": "run"}); got["task_id"] == nil {
		t.Errorf("run = %v, want a task", got)
	}
	refused("bad_arguments", "control_schedule", m{"name": "nightly", "action": "stop"})

	if workers := call("get_fleet", nil)["workers"].([]any); len(workers) != 1 {
		t.Errorf("get_fleet = %v, want one worker", workers)
	}
	call("get_usage", nil)
	refused("bad_parameter", "get_usage", m{"since": "yesterday"})
}

// TestNoToolApproves checks that an agent cannot approve its own calls, answer for others, or operate workers, tokens
// and tenants.
func TestNoToolApproves(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	l, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range l.Tools {
		for _, word := range []string{"approve", "token", "tenant", "drain"} {
			if strings.Contains(tool.Name, word) {
				t.Errorf("the tool %s exists", tool.Name)
			}
		}
	}
	agent, _ := stdio(t, options(f, ingesttest.Agent), nil)
	if l, err = agent.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, tool := range l.Tools {
		if tool.Name == "get_fleet" {
			t.Error("a token without the scope operator sees get_fleet")
		}
	}
}
