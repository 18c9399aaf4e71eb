package ingest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/skills"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	// smokeTime is how long a task of a smoke run may take, including its time in the queue.
	smokeTime = 60 * time.Second
	// smokeDir is where the smoke run finds the skill, below its workspace. The skill is not committed there.
	smokeDir = ".new-skill"
	// smokeLabel is the label of the tasks of a smoke run.
	smokeLabel = "codefleet.skill"
)

// smokeRun judges the program of a skill and the inputs by the guardrails, and then imports the program in a sandbox.
// It calls the function run if there are inputs, or if run needs no argument. It returns nil for a skill without a
// program.
func (s *Server) smokeRun(ctx context.Context, k skills.Skill, d schemas.SkillDraft) (*schemas.SmokeRun, error) {
	if k.Entry == skills.EntryNone {
		return nil, nil
	}
	check := schemas.Task{Code: string(k.Files[skills.Program]), Inputs: d.Inputs, CheckOnly: true}
	judged, err := s.smokeTask(ctx, k, d, check)
	if err != nil {
		return nil, err
	}
	refused := slices.IndexFunc(judged.Guardrails, func(f schemas.Finding) bool { return f.Level == "refused" })
	if refused >= 0 {
		f := judged.Guardrails[refused]
		cause, hint := f.Message, "the guardrails are strict: change the program or the inputs, or ask the operator"
		if f.Line > 0 {
			cause = fmt.Sprintf("line %d: %s", f.Line, cause)
		}
		return nil, smokeFailed(judged.TaskID, cause, hint)
	}
	task := schemas.Task{Code: smokeProgram(k, d.Inputs), Inputs: d.Inputs, Commit: "never"}
	module := k.Module()
	for _, name := range slices.Sorted(maps.Keys(module)) {
		data := base64.StdEncoding.EncodeToString(module[name])
		task.Files = append(task.Files, schemas.File{Name: smokeDir + "/skills/" + name, Base64: &data})
	}
	res, err := s.smokeTask(ctx, k, d, task)
	if err != nil {
		return nil, err
	}
	smoke := &schemas.SmokeRun{Task: res.TaskID, Called: true, Result: res.Result, Findings: judged.Guardrails}
	if len(d.Inputs) == 0 {
		var outcome struct {
			Called bool            `json:"called"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(res.Result, &outcome); err == nil {
			smoke.Called, smoke.Result = outcome.Called, outcome.Result
		}
	}
	return smoke, nil
}

// smokeProgram returns the program of a smoke run. Without inputs, it calls run only if that needs no argument.
func smokeProgram(k skills.Skill, inputs json.RawMessage) string {
	preamble := "import sys\n\nsys.path.insert(0, \"/workspace/" + smokeDir + "\")\n\n"
	if len(inputs) > 0 {
		return preamble + skills.Call(k.Name, inputs)
	}
	return preamble + `import inspect

from skills.` + skills.ModuleOf(k.Name) + ` import run

parameters = inspect.signature(run).parameters.values()
needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
called = not needed
result = {"called": called, "result": run() if called else None}
`
}

// smokeTask runs a task of a smoke run, and returns its result. It returns an error unless the task succeeds in time.
func (s *Server) smokeTask(
	ctx context.Context, k skills.Skill, d schemas.SkillDraft, task schemas.Task,
) (*schemas.Result, error) {
	task.Pool, task.Labels = d.Pool, map[string]string{smokeLabel: k.Name}
	task.Retry = &schemas.Retry{Attempts: 1}
	fields := struct {
		schemas.Task
		Workspace string `json:"workspace,omitempty"`
		Source    string `json:"source"`
	}{task, d.Workspace, skills.TaskSource}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	ev, refused := eventOfTask("", body)
	if refused != nil {
		return nil, refused
	}
	rec, err := s.submit(ctx, ev)
	if err != nil {
		return nil, err
	}
	if !rec.Status.Terminal() {
		if rec, err = s.await(ctx, rec.TaskID, smokeTime, func(schemas.Record) bool { return false }); err != nil {
			return nil, err
		}
	}
	if !rec.Status.Terminal() {
		return nil, s.cancelLateSmoke(ctx, rec)
	}
	if rec.Status != schemas.Succeeded {
		return nil, smokeUnsuccessful(rec)
	}
	return rec.Result, nil
}

// cancelLateSmoke cancels a smoke run that has not ended in time, and returns its error.
func (s *Server) cancelLateSmoke(ctx context.Context, rec schemas.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Limits.QueueTime)
	defer cancel()
	why, err := s.queue.Why(ctx, rec.Tenant, rec.TaskID)
	if err != nil {
		why = schemas.Why{Rule: schemas.WhyRunning}
	}
	_, err = s.queue.Cancel(ctx, rec.Tenant, rec.TaskID)
	if err != nil {
		s.o.Telemetry.Log.WarnContext(ctx, "smoke run not cancelled", "task_id", rec.TaskID, "error", err)
	}
	if s.stopping.Err() != nil {
		return apierror.New(errcode.Stopping, "this process is shutting down")
	}
	return smokeFailed(rec.TaskID, lateCause(rec.Status, why), lateHint(why.Rule))
}

// lateCause says in which state a smoke run was that has not ended in time, and what it waited for.
func lateCause(status schemas.Status, why schemas.Why) string {
	cause := fmt.Sprintf("it was %s after %s", status, smokeTime)
	if why.Rule == schemas.WhyRunning || why.Rule == schemas.WhyEnded {
		return cause
	}
	return cause + ", because " + why.Message
}

// lateHint says what to do about a smoke run that has not ended in time, by the reason why it waited.
func lateHint(rule string) string {
	switch rule {
	case schemas.WhyRunning, schemas.WhyEnded:
		return "pass inputs with which the program ends soon"
	case schemas.WhyApproval:
		return "save the skill again, and have the call approved meanwhile, or pass inputs with which it is not made"
	}
	return "save the skill again when tasks no longer wait"
}

// smokeUnsuccessful returns the error of a smoke run whose task ended without success.
func smokeUnsuccessful(rec schemas.Record) error {
	cause, hint := string(rec.Status), ""
	if rec.Result != nil && rec.Result.Error != nil {
		e := rec.Result.Error
		cause, hint = e.Message, e.Hint
		if lines := strings.TrimSpace(e.Cause); lines != "" {
			cause += "\n" + lines
		}
	}
	return smokeFailed(rec.TaskID, cause, hint)
}

func smokeFailed(task, cause, hint string) error {
	e := apierror.New(errcode.SkillFailed, "the smoke run of the skill failed, so it was not saved")
	e.Cause = text.Truncate("task "+task+": "+cause, maxSkillCause)
	e.Hint = cmp.Or(hint, "correct the program; the result of the task has its output")
	return e
}
