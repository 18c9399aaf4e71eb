package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/schemas"
)

// skillFleet starts a fleet with skills, and returns clients of two tenants. Its worker prints programs instead of
// running them; a program that begins with "fail" fails.
func skillFleet(t *testing.T) (ours, theirs *client.Client) {
	t.Helper()
	_, ours, theirs = startSkillFleet(t, 2)
	return ours, theirs
}

func startSkillFleet(t *testing.T, workers int) (f *ingesttest.Fleet, ours, theirs *client.Client) {
	t.Helper()
	f = ingesttest.Start(t, workers, func(o *ingest.Options, _ *jobs.Options) {
		o.Skills = skills.NewLibrary(skills.Options{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler)})
	})
	connect := func(token string) *client.Client {
		c, err := client.New(t.Context(), client.Options{URL: f.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return f, connect(ingesttest.Token), connect(ingesttest.Other)
}

// TestGuardedSkill checks that strict guardrails judge the inputs of a smoke run along with the program, and that the
// error names a line only if the finding has one.
func TestGuardedSkill(t *testing.T) {
	f, ours, _ := startSkillFleet(t, 0)
	guarded := func(ctx context.Context, j *jobs.Job) (*schemas.Result, error) {
		r, err := ingesttest.Run(ctx, j)
		switch finding := (schemas.Finding{Rule: "x", Level: "refused"}); {
		case !j.Task.CheckOnly || err != nil:
			return r, err
		case strings.Contains(j.Task.Code, "os.system"):
			finding.Line, finding.Message = 2, "starts processes"
			r.Guardrails = []schemas.Finding{finding}
		case string(j.Task.Inputs) != `{"amount":4}`:
			finding.Message = "breaks the rule small"
			r.Guardrails = []schemas.Finding{finding}
		}
		return r, nil
	}
	work(t, f.Jobs, guarded)
	for name, c := range map[string]struct{ code, inputs, cause string }{
		"meets":  {"def run(amount): pass", `{"amount":4}`, ""},
		"breaks": {"def run(amount): pass", `{"amount":400}`, "breaks the rule small"},
		"calls":  {"import os\nos.system('x')", `{"amount":4}`, "line 2: starts processes"},
	} {
		draft := client.SkillDraft{Description: "x", Code: c.code, Inputs: json.RawMessage(c.inputs)}
		_, err := ours.SaveSkill(t.Context(), name, draft)
		var cause string
		if e, ok := errors.AsType[*client.APIError](err); ok {
			_, cause, _ = strings.Cut(e.Cause, ": ") // the task's id is before
		}
		if cause != c.cause || (err == nil) != (c.cause == "") {
			t.Errorf("SaveSkill(%s) = %v, want the cause %q", name, err, c.cause)
		}
	}
}

// work runs a worker with the handler until the test ends.
func work(t *testing.T, queue *jobs.Client, h jobs.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := jobs.NewWorker(queue, jobs.WorkerOptions{Name: "guarded", Handler: h})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx, ctx); err != nil {
			t.Errorf("Run of the worker = %v, want nil", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func TestSkills(t *testing.T) {
	ours, theirs := skillFleet(t)
	ctx := t.Context()
	draft := client.SkillDraft{
		Description: "Doubles.", Code: "def run(x):\n    return 2 * x\n", Inputs: json.RawMessage(`{"x":1}`),
	}
	saved, err := ours.SaveSkill(ctx, "double-number", draft)
	if err != nil || saved.Version != 1 || saved.Signature != "run(x)" || saved.Scope != "tenant" ||
		saved.Module != "skills.double_number" || saved.SavedBy != "default" ||
		saved.Smoke == nil || !saved.Smoke.Called {
		t.Errorf("SaveSkill = %+v, %v; want version 1 with a smoke run", saved, err)
	}
	// The client repeats a request whose response was lost.
	if again, err := ours.SaveSkill(ctx, "double-number", draft); err != nil || again.Version != 1 {
		t.Errorf("SaveSkill again = %+v, %v; want version 1", again, err)
	}
	other := draft
	other.Description = "Doubles a number."
	again, err := ours.SaveSkill(ctx, "double-number", other)
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != errcode.SkillConflict ||
		!strings.Contains(e.Hint, "set base to 1") {
		t.Errorf("SaveSkill under the same name = %+v, %v; want %s with a hint", again, err, errcode.SkillConflict)
	}
	for what, c := range map[string]struct {
		do   func() error
		hint string
	}{
		"remove another version": {func() error { return ours.RemoveSkill(ctx, "double-number", 7) }, "name version 1"},
		"replace a skill that does not exist": {func() error {
			base := other
			base.Base = 2
			_, err := ours.SaveSkill(ctx, "no-number", base)
			return err
		}, "leave out base"},
	} {
		err := c.do()
		if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != errcode.SkillConflict ||
			!strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s = %v, want %s with the hint %q", what, err, errcode.SkillConflict, c.hint)
		}
	}
	list, err := ours.Skills(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "double-number" {
		t.Errorf("Skills = %+v, %v; want double-number", list, err)
	}
	if list, err := theirs.Skills(ctx); err != nil || len(list) != 0 {
		t.Errorf("Skills of another tenant = %+v, %v; want none", list, err)
	}
	_, err = theirs.Skill(ctx, "double-number", 0)
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != errcode.UnknownSkill {
		t.Errorf("Skill of another tenant = %v, want %s", err, errcode.UnknownSkill)
	}
	if err := theirs.RemoveSkill(ctx, "double-number", 0); err == nil {
		t.Error("RemoveSkill of another tenant's skill = nil, want an error")
	}
	k, err := ours.Skill(ctx, "double-number", 1)
	if err != nil || k.Code != draft.Code || len(k.Content) != 2 ||
		!strings.Contains(k.Instructions, "# double-number") {
		t.Errorf("Skill = %+v, %v; want the program and two files", k, err)
	}
	rec, err := ours.Run(ctx, client.Submission{Task: client.Task{Code: "print 5"}})
	if err != nil {
		t.Fatal(err)
	}
	fromTask, err := ours.SaveSkill(ctx, "from-task", client.SkillDraft{Task: rec.TaskID, Description: "x"})
	if err != nil || fromTask.FromTask != rec.TaskID {
		t.Errorf("SaveSkill from a task = %+v, %v; want the task's id", fromTask, err)
	}
	content := client.SkillDraft{Content: k.Content, Base: 1}
	if saved, err := ours.SaveSkill(ctx, "double-number", content); err != nil || saved.Version != 1 {
		t.Errorf("SaveSkill of the same files = %+v, %v; want version 1", saved, err)
	}
	versions, err := ours.SkillVersions(ctx, "double-number")
	if err != nil || len(versions) != 1 || versions[0].SHA256 == "" {
		t.Errorf("SkillVersions = %+v, %v; want one", versions, err)
	}
	if err := ours.RemoveSkill(ctx, "double-number", 1); err != nil {
		t.Errorf("RemoveSkill = %v, want nil", err)
	}
}

func TestRefusedSkills(t *testing.T) {
	ours, _ := skillFleet(t)
	text := func(s string) *string { return &s }
	large := strings.Repeat("x", 9<<20)
	for want, c := range map[string]struct {
		name  string
		draft client.SkillDraft
		code  string
	}{
		"exactly one of":          {"a", client.SkillDraft{}, errcode.BadData},
		"exactly one of code":     {"a", client.SkillDraft{Code: "x", Task: "y"}, errcode.BadData},
		"must be lowercase":       {"A", client.SkillDraft{Code: "x", Description: "x"}, errcode.BadSkill},
		"a keyword of Python":     {"class", client.SkillDraft{Code: "x", Description: "x"}, errcode.BadSkill},
		"non-empty string":        {"a", client.SkillDraft{Code: "x"}, errcode.BadSkill},
		"the task does not exist": {"a", client.SkillDraft{Task: strings.Repeat("a", 26)}, errcode.UnknownTask},
		"Missing required file": {
			"a", client.SkillDraft{Content: []client.File{{Name: "x", Text: text("x")}}}, errcode.BadSkill,
		},
		"not a path within": {
			"a", client.SkillDraft{Content: []client.File{{Name: "../x", Text: text("x")}}}, errcode.BadSkill,
		},
		"is not valid base64": {
			"a", client.SkillDraft{Content: []client.File{{Name: "x", Base64: text("?")}}}, errcode.BadData,
		},
		"is listed twice": {
			"a", client.SkillDraft{Content: []client.File{
				{Name: "x", Text: text("")}, {Name: "x", Text: text("")},
			}}, errcode.BadData,
		},
		"the limit is 8388608": {"a", client.SkillDraft{Code: large, Description: "x"}, errcode.BadSkill},
		"ValueError: on purpose": {
			"a", client.SkillDraft{Code: "fail on purpose", Description: "x"}, errcode.SkillFailed,
		},
		"is larger than": {
			"a", client.SkillDraft{Code: strings.Repeat(large, 6), Description: "x"}, errcode.TooLarge,
		},
		"but the change builds on": {
			"a", client.SkillDraft{Code: "x", Description: "x", Base: 3}, errcode.SkillConflict,
		},
	} {
		_, err := ours.SaveSkill(t.Context(), c.name, c.draft)
		e, ok := errors.AsType[*client.APIError](err)
		if !ok || e.Code != c.code || !strings.Contains(fmt.Sprint(e.Message, e.Cause, e.Hint), want) {
			t.Errorf("SaveSkill(%s, %.80v) = %.300v, want %s with %q", c.name, c.draft, err, c.code, want)
		}
	}
	if list, err := ours.Skills(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("Skills = %+v, %v; want none", list, err)
	}
}
