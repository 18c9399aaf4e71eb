package page

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/schemas"
)

// askingRun is a run of a workflow with its steps that ask.
type askingRun struct {
	client.WorkflowRun
	Rows []stepRow
}

// getInbox shows what waits for a person: tool calls, and the questions of at most listLimit runs of workflows.
func getInbox(q *request) error {
	var data struct {
		Approvals []client.PendingApproval
		Asking    []askingRun
		More      bool // whether other runs may ask, too
	}
	var err error
	if data.Approvals, err = q.c.Approvals(q.ctx); err != nil {
		return err
	}
	runs, err := q.c.AskingRuns(q.ctx, listLimit)
	if err != nil {
		return err
	}
	data.More = len(runs) == listLimit
	for _, r := range runs {
		if r, err = q.c.WorkflowRun(q.ctx, r.RunID); err != nil {
			return err
		}
		rows := slices.DeleteFunc(stepRows(r), func(row stepRow) bool { return row.Form == nil })
		if len(rows) > 0 {
			data.Asking = append(data.Asking, askingRun{r, rows})
		}
	}
	return q.show("inbox", "Inbox", data)
}

// postDecision approves or denies a tool call.
func postDecision(q *request) (next, done string, err error) {
	d := client.Decision{Call: q.form.Get("call"), Reason: q.form.Get("reason")}
	switch q.form.Get("answer") {
	case "approve":
		d.Approve, done = true, "Approved."
	case "approve-all":
		d.Approve, d.AllOfTool, done = true, true, "Approved, with all later calls of the tool in this task."
	case "deny":
		done = "Denied."
	default:
		return "", "", errNoPage
	}
	if d.Call == "" { // the decision would be for all pending calls of the task
		return "", "", &pageError{http.StatusBadRequest, "The form names no call.", "Load the page again."}
	}
	if len(d.Reason) > schemas.MaxReason {
		return "", "", &pageError{
			http.StatusBadRequest, "The reason is too long.",
			fmt.Sprintf("It has at most %d bytes.", schemas.MaxReason),
		}
	}
	_, err = q.c.Decide(q.ctx, q.form.Get("task"), d)
	return "inbox", done, err
}

// deadGroup is the dead letters with one cause.
type deadGroup struct {
	Cause string
	Tasks []client.DeadTask
}

// getDead shows the dead letters by cause.
func getDead(q *request) error {
	list, err := q.c.Dead(q.ctx, readLimit)
	if err != nil {
		return err
	}
	var groups []deadGroup
	for _, d := range list {
		i := slices.IndexFunc(groups, func(g deadGroup) bool { return g.Cause == d.Error.Code })
		if i < 0 {
			groups, i = append(groups, deadGroup{Cause: d.Error.Code}), len(groups)
		}
		groups[i].Tasks = append(groups[i].Tasks, d)
	}
	return q.show("dead", "Dead letters", struct {
		Groups []deadGroup
		More   bool
	}{groups, len(list) == readLimit})
}

// postDead redrives the dead letters with a cause, or one task.
func postDead(q *request) (next, done string, err error) {
	if id := q.form.Get("id"); id != "" {
		_, err := q.c.Redrive(q.ctx, id)
		return "dead", "The task is queued again.", err
	}
	cause := q.form.Get("cause")
	if cause == "" {
		return "", "", errNoTask
	}
	redriven, failed := 0, 0
	err = q.c.RedriveWithCause(q.ctx, cause, func(t client.RedrivenTask) error {
		if t.Error != "" {
			failed++
		} else {
			redriven++
		}
		return nil
	})
	done = fmt.Sprintf("Tasks queued again: %d.", redriven)
	if failed > 0 {
		done += fmt.Sprintf(" %d could not be redriven.", failed)
	}
	return "dead", done, err
}

// getAutomation shows schedules, triggers and webhooks.
func getAutomation(q *request) error {
	var data struct {
		Schedules []client.Schedule
		Triggers  []client.Trigger
		Webhooks  []client.Webhook
	}
	var err error
	if data.Schedules, err = q.c.Schedules(q.ctx); err != nil {
		return err
	}
	if data.Triggers, err = q.c.Triggers(q.ctx); err != nil {
		return err
	}
	if data.Webhooks, err = q.c.Webhooks(q.ctx); err != nil {
		return err
	}
	return q.show("automation", "Automation", data)
}

// postSchedule pauses, resumes or runs a schedule.
func postSchedule(q *request) (next, done string, err error) {
	name := q.r.PathValue("name")
	switch q.r.PathValue("verb") {
	case "pause":
		_, err = q.c.PauseSchedule(q.ctx, name)
		done = "The schedule is paused."
	case "resume":
		_, err = q.c.ResumeSchedule(q.ctx, name)
		done = "The schedule fires again."
	case "run":
		r, err := q.c.RunSchedule(q.ctx, name)
		return path("tasks", r.TaskID), "Submitted.", err
	default:
		err = errNoPage
	}
	return "automation", done, err
}
