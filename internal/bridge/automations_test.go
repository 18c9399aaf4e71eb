package bridge_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestAutomations adds a schedule and a trigger, lists them beside a webhook, of which it sees only the host, and
// removes them.
func TestAutomations(t *testing.T) {
	type m = map[string]any
	f := ingesttest.Start(t, 0, nil)
	cs, _ := stdio(t, options(f, ingesttest.Token), nil)
	c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: ingesttest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.AddWebhook(t.Context(), client.WebhookSpec{
		Name: "hook", URL: "https://hooks.example.org/secret-path?key=secret", NoHandshake: true,
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be repeated
		got, failed := invoke(t, cs, "add_schedule", m{
			"name": "report", "cron": "@every 1h", "code": "print(inputs)", "inputs": m{"n": 1}, "workspace": "lab",
		})
		if next, _ := got["next"].(string); failed || got["name"] != "report" || next == "" {
			t.Fatalf("add_schedule = %v, want the schedule with its next firing", got)
		}
	}
	if got, failed := invoke(t, cs, "add_trigger", m{
		"name": "order", "type": "order.*", "filter": "data.total > 100", "task_description": "Write an invoice",
	}); failed || got["type"] != "order.*" {
		t.Fatalf("add_trigger = %v, want the trigger", got)
	}
	for _, bad := range []struct {
		tool string
		args m
		want string
	}{
		{"add_schedule", m{"name": "x", "cron": "61 * * * *", "code": "1"}, "/cron"},
		{"add_schedule", m{"name": "report", "cron": "@daily", "code": "1"}, "automation_exists"},
		{"add_schedule", m{"name": "x", "cron": "@daily"}, "task_description"},
		{"add_trigger", m{"name": "x", "type": "a", "filter": "1 +", "code": "1"}, "/filter"},
		{"remove_automation", m{"kind": "webhook", "name": "hook"}, "want schedule or trigger"},
		{"remove_automation", m{"kind": "trigger", "name": "absent"}, "unknown_automation"},
	} {
		got, failed := invoke(t, cs, bad.tool, bad.args)
		if text, _ := got["error"].(string); !failed || !strings.Contains(text+got["error_code"].(string), bad.want) {
			t.Errorf("%s(%v) = %v, want an error with %q", bad.tool, bad.args, got, bad.want)
		}
	}
	got, _ := invoke(t, cs, "list_automation", m{})
	schedules, _ := got["schedules"].([]any)
	triggers, _ := got["triggers"].([]any)
	webhooks, _ := got["webhooks"].([]any)
	if len(schedules) != 1 || len(triggers) != 1 || len(webhooks) != 1 {
		t.Fatalf("list_automation = %v, want one of each kind", got)
	}
	hook, _ := webhooks[0].(m)
	if hook["host"] != "hooks.example.org" || len(hook) != 3 {
		t.Errorf("webhook = %v, want name, type and host only", hook)
	}
	stored, err := c.Schedule(t.Context(), "report")
	if err != nil || string(stored.Task) != `{"code":"print(inputs)","inputs":{"n":1},"workspace":"lab"}` {
		t.Errorf("the schedule's task = %s, %v, want code, inputs and workspace", stored.Task, err)
	}
	for kind, name := range map[string]string{"schedule": "report", "trigger": "order"} {
		got, failed := invoke(t, cs, "remove_automation", m{"kind": kind, "name": name})
		if failed || got["removed"] != true {
			t.Errorf("remove_automation(%s) = %v, want removed", kind, got)
		}
	}
	if list, err := c.Schedules(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("Schedules = %v, %v, want none", list, err)
	}
}
