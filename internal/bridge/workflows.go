package bridge

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// This file has the tools about workflows.

type runWorkflowIn struct {
	Workflow  json.RawMessage `json:"workflow" jsonschema:"the definition: name, steps, perhaps inputs and outputs"`
	Inputs    json.RawMessage `json:"inputs,omitempty" jsonschema:"an object"`
	Workspace string          `json:"workspace,omitempty"`
	WaitMS    *int            `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end; default {get}, at most {max}"`
}

type getRunIn struct {
	RunID  string `json:"run_id"`
	WaitMS *int   `json:"wait_ms,omitempty" jsonschema:"milliseconds to wait for the end; default {get}, at most {max}"`
}

type answerRunIn struct {
	RunID  string          `json:"run_id"`
	Step   string          `json:"step"`
	Item   *int            `json:"item,omitempty" jsonschema:"of a loop"`
	Values json.RawMessage `json:"values" jsonschema:"an object that fits the form of the step"`
}

type listRunsIn struct {
	Limit int `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type listedRun struct {
	RunID     string    `json:"run_id"`
	Name      string    `json:"name"`
	Status    string    `json:"status"`
	Workspace string    `json:"workspace,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

type cancelRunIn struct {
	RunID string `json:"run_id"`
}

type rerunIn struct {
	RunID string `json:"run_id"`
	Step  string `json:"step" jsonschema:"the id of the step to begin with"`
}

type runStepOut struct {
	ID      string `json:"id"`
	Item    *int   `json:"item,omitempty" jsonschema:"of a loop that asks: pass it to answer_workflow"`
	Status  string `json:"status" jsonschema:"pending, running, waiting, succeeded, failed, skipped or cancelled"`
	TaskID  string `json:"task_id,omitempty" jsonschema:"get_task returns its output"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty" jsonschema:"what the step asks people"`
}

type runOut struct {
	RunID   string          `json:"run_id"`
	Status  string          `json:"status" jsonschema:"running, waiting (for people, time or events), succeeded, failed or cancelled"`
	Outputs json.RawMessage `json:"outputs,omitempty"`
	Error   string          `json:"error,omitempty"`
	Steps   []runStepOut    `json:"steps"`
	// Truncated says that fitRun has left something out.
	Truncated bool `json:"truncated,omitempty" jsonschema:"some did not fit; get_task returns the result of a step"`
}

func (ts *toolSet) addWorkflows() {
	addTool(ts, tool{
		name: "run_workflow", title: "Run a workflow", scope: scopeSubmit, out: schemaOf[runOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
		text: "Run several steps as one workflow, which continues after failures of workers: programs, tools, loops, " +
			"waits and questions to people. A step has an id and one of code, task (words), skill, " +
			"tool (SERVER/TOOL), wait {for}, ask {message, form}, emit {type}; with = its inputs; needs, when, " +
			"for_each {in, max}, retry {attempts}. Values in ${ } are CEL: ${ inputs.x }, " +
			"${ steps.ID.result }. For one program, use execute_task.",
	}, func(ctx context.Context, c *call, in runWorkflowIn) (*result, error) {
		wait, err := c.wait(in.WaitMS, getWait)
		if err != nil {
			return nil, err
		}
		run, err := c.fleet.RunWorkflow(ctx, client.WorkflowRequest{
			Workflow: in.Workflow, Inputs: in.Inputs, Workspace: in.Workspace,
		})
		if err != nil {
			return nil, err
		}
		return c.waitRun(ctx, run.RunID, wait)
	})
	addTool(ts, tool{
		name: "get_workflow_run", title: "Get a workflow run", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[runOut](),
		text: "Wait for a workflow run and return the status of its steps, and its outputs once it has succeeded.",
	}, func(ctx context.Context, c *call, in getRunIn) (*result, error) {
		wait, err := c.wait(in.WaitMS, getWait)
		if err != nil {
			return nil, err
		}
		return c.waitRun(ctx, strings.TrimSpace(in.RunID), wait)
	})
	addTool(ts, tool{
		name: "answer_workflow", title: "Answer a workflow", scope: scopeSubmit, out: schemaOf[runOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)},
		text:  "Answer a step of a workflow run that asks people. Ask the user first. The first answer counts.",
	}, func(ctx context.Context, c *call, in answerRunIn) (*result, error) {
		run, err := c.fleet.AnswerWorkflow(ctx, strings.TrimSpace(in.RunID), client.WorkflowAnswer{
			Step: in.Step, Item: in.Item, Values: in.Values,
		})
		if err != nil {
			return nil, err
		}
		return &result{out: c.viewRun(ctx, run)}, nil
	})
	addTool(ts, tool{
		name: "list_workflow_runs", title: "List workflow runs", scope: scopeRead, hints: readsOnly,
		out: schemaOf[fittingList[listedRun]](), text: "The latest workflow runs, newest first.",
	}, func(ctx context.Context, c *call, in listRunsIn) (*result, error) {
		limit, err := listLimit(in.Limit)
		if err != nil {
			return nil, err
		}
		runs, err := c.fleet.WorkflowRuns(ctx, limit)
		if err != nil {
			return nil, err
		}
		list := make([]listedRun, len(runs))
		for i, r := range runs {
			list[i] = listedRun{r.RunID, r.Name, string(r.Status), r.Workspace, r.CreatedAt}
		}
		return listed(c, list), nil
	})
	addTool(ts, tool{
		name: "cancel_workflow", title: "Cancel a workflow run", scope: scopeSubmit, out: schemaOf[runOut](),
		hints: changesFleet,
		text:  "Cancel a workflow run: its running steps are cancelled, then its steps of finally run.",
	}, func(ctx context.Context, c *call, in cancelRunIn) (*result, error) {
		run, err := c.fleet.CancelWorkflow(ctx, strings.TrimSpace(in.RunID))
		if err != nil {
			return nil, err
		}
		return &result{out: c.viewRun(ctx, run)}, nil
	})
	addTool(ts, tool{
		name: "rerun_workflow", title: "Rerun a workflow from a step", scope: scopeSubmit, out: schemaOf[runOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
		text: "Run a workflow again from a step of an ended run, with the results of the steps before and the files " +
			"that the step began with. Returns the new run.",
	}, func(ctx context.Context, c *call, in rerunIn) (*result, error) {
		run, err := c.fleet.RerunWorkflow(ctx, strings.TrimSpace(in.RunID), client.WorkflowRerun{From: in.Step})
		if err != nil {
			return nil, err
		}
		return &result{out: c.viewRun(ctx, run)}, nil
	})
}

// waitRun waits until a run has ended or waits for people, time or events, at most as long as wait or until the bridge
// stops, and returns it.
func (c *call) waitRun(ctx context.Context, id string, wait time.Duration) (*result, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(c.b.stopping, cancel)()
	run, err := c.fleet.WaitWorkflow(waiting, id, func(run client.WorkflowRun) bool { return run.Status == "running" })
	if waiting.Err() != nil && ctx.Err() == nil {
		run, err = c.fleet.WorkflowRun(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &result{out: c.viewRun(ctx, run), failed: run.Status == "failed"}, nil
}

func (c *call) viewRun(ctx context.Context, run client.WorkflowRun) runOut {
	out := runOut{RunID: run.RunID, Status: string(run.Status), Outputs: run.Outputs, Steps: []runStepOut{}}
	// Private values are hidden before a text is cut, because hideResults would not recognize a cut value.
	start := func(s string) string {
		s = c.hidden(ctx, s)
		cut := textStart(s, c.b.o.MaxOutput/4)
		out.Truncated = out.Truncated || cut != s
		return cut
	}
	if run.Error != nil {
		out.Error = start(strings.TrimPrefix(run.Error.Step+": ", ": ") + run.Error.Error())
	}
	for _, s := range run.Steps {
		step := runStepOut{ID: s.ID, Status: string(s.Status), TaskID: s.TaskID}
		if s.Error != nil {
			step.Error = start(s.Error.Error())
		}
		if s.Status == "waiting" {
			step.Message = start(s.Message)
		}
		out.Steps = append(out.Steps, step)
		questions := 0
		for i, item := range s.Items {
			if item.Status != "waiting" || item.Message == "" {
				continue
			}
			if questions++; questions > maxQuestions {
				out.Truncated = true
				break
			}
			out.Steps = append(out.Steps, runStepOut{
				ID: s.ID, Item: &i, Status: string(item.Status), Message: start(item.Message),
			})
		}
	}
	return fitRun(out, c.b.o.MaxOutput)
}

// maxQuestions is how many questions of a loop's items an agent sees at once. It gets others when it has answered some.
const maxQuestions = 20

// fitRun returns the run in at most limit bytes of JSON. If it is larger, fitRun leaves out outputs that take more than
// half of the limit. If the steps do not fit, it leaves out those that have not begun or need no attention, and then
// the last ones.
func fitRun(out runOut, limit int) runOut {
	if jsonSize(out) <= limit {
		return out
	}
	out.Truncated = true
	if jsonSize(out.Outputs) > limit/2 {
		out.Outputs = nil
	}
	steps := out.Steps
	out.Steps = []runStepOut{}
	budget := limit - jsonSize(out)
	if jsonSize(steps) > budget {
		steps = slices.DeleteFunc(steps, func(s runStepOut) bool {
			return s.Status == "pending" || s.Status == "succeeded" || s.Status == "skipped"
		})
	}
	out.Steps = append(out.Steps, listPrefix(steps, budget)...)
	return out
}
