package bridge_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state/mem"
)

// TestSkillPrompts checks that skills are prompts, and that tenants see only their own.
func TestSkillPrompts(t *testing.T) {
	f := ingesttest.Start(t, 1, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
	})
	ours, _ := stdio(t, options(f, ingesttest.Token), nil)
	theirs, _ := stdio(t, options(f, ingesttest.Other), nil)
	prompts := func(token string) (out []string) {
		cs, _ := stdio(t, options(f, token), nil) // a client caches the list for a while
		list, err := cs.ListPrompts(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Prompts {
			out = append(out, p.Name)
		}
		return out
	}
	if got := prompts(ingesttest.Token); len(got) != 0 {
		t.Errorf("prompts without skills = %v, want none", got)
	}
	got, failed := invoke(t, ours, "save_skill", map[string]any{
		"name": "double_number", "description": "Doubles.", "code": "def run(x):\n    return 2 * x\n",
		"inputs": map[string]any{"x": 1}, "tags": "maths,numbers",
	})
	if failed || got["name"] != "double-number" || got["version"] != 1.0 {
		t.Fatalf("save_skill = %v, want double-number, version 1", got)
	}
	if got := prompts(ingesttest.Token); len(got) != 1 || got[0] != "double-number" {
		t.Errorf("prompts = %v, want double-number", got)
	}
	if got := prompts(ingesttest.Other); len(got) != 0 {
		t.Errorf("prompts of another tenant = %v, want none", got)
	}
	r, err := ours.GetPrompt(t.Context(), &mcp.GetPromptParams{
		Name: "double-number", Arguments: map[string]string{"inputs": `{"x": 4}`},
	})
	if err != nil || len(r.Messages) != 1 {
		t.Fatalf("GetPrompt = %+v, %v; want one message", r, err)
	}
	message, _ := r.Messages[0].Content.(*mcp.TextContent)
	for _, want := range []string{"Doubles.", "from skills.double_number import run", `Inputs: {"x": 4}`} {
		if message == nil || !strings.Contains(message.Text, want) {
			t.Errorf("message = %+v, want one with %q", message, want)
		}
	}
	if _, err := theirs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "double-number"}); err == nil {
		t.Error("GetPrompt of another tenant's skill = nil, want an error")
	}
	_, failed = invoke(t, ours, "save_skill", map[string]any{
		"name": "broken", "description": "x", "code": "fail on purpose",
	})
	if !failed {
		t.Error("save_skill of a program that fails succeeded, want an error")
	}
	got, failed = invoke(t, ours, "save_skill", map[string]any{"name": "Bad_Name", "description": "x", "code": "x = 1"})
	if want := "'Bad_Name'"; !failed || !strings.Contains(fmt.Sprint(got["error"]), want) {
		t.Errorf("save_skill of Bad_Name = %v, want an error with %s", got, want)
	}
	compact := options(f, ingesttest.Token)
	compact.Profile = bridge.Compact
	cs, _ := stdio(t, compact, nil)
	if cs.InitializeResult().Capabilities.Prompts != nil {
		t.Error("the compact profile has prompts, want none")
	}
}
