package bridge_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
	for _, code := range []string{"print ada", "fail ada", "stages ada"} {
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
	for len(received) > 0 {
		if message := <-received; strings.Contains(message, "ada") {
			t.Errorf("progress %q, want no value", message)
		}
	}
}
