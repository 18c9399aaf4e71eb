package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

const (
	listLimit = 100  // items that a list shows, such as the newest tasks
	readLimit = 1000 // items that a page reads to search or to group them
	maxBulk   = 1000 // tasks that one form may name
)

// taskRow is a task in a list.
type taskRow struct {
	client.Record
	Summary string
	Took    float64 // milliseconds; 0 before the task has ended
}

func rowOf(r client.Record) taskRow {
	row := taskRow{Record: r, Summary: r.Summary()}
	if r.Result != nil {
		row.Took = r.Result.TimingMS.Total
	}
	return row
}

// getTasks lists tasks. The filters are in the URL: status, any number of times, and q, text to search for.
func getTasks(q *request) error {
	query := q.r.URL.Query()
	o := client.ListOptions{Limit: listLimit}
	for _, s := range query["status"] {
		if isStatus(s) {
			o.Status = append(o.Status, client.Status(s))
		}
	}
	text := strings.ToLower(strings.TrimSpace(query.Get("q")))
	if text != "" {
		o.Limit = readLimit
	}
	records, err := q.c.List(q.ctx, o)
	if err != nil {
		return err
	}
	data := struct {
		Tasks    []taskRow
		Statuses []client.Status
		Chosen   []client.Status
		Query    string
		More     bool
	}{Statuses: statuses, Chosen: o.Status, Query: query.Get("q"), More: len(records) == o.Limit}
	for _, r := range records {
		row := rowOf(r)
		if text != "" && !matches(row, text) {
			continue
		}
		if text != "" && len(data.Tasks) == listLimit {
			data.More = true
			break
		}
		data.Tasks = append(data.Tasks, row)
	}
	return q.show("tasks", "Tasks", data)
}

// matches reports whether a task's id, summary, session, workspace, task pool or worker contains the text, which must
// be in lower case.
func matches(t taskRow, text string) bool {
	return slices.ContainsFunc([]string{t.TaskID, t.Summary, t.Session, t.Workspace, t.Pool, t.Worker},
		func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

// postTasks cancels, retries or redrives the selected tasks.
func postTasks(q *request) (next, done string, err error) {
	ids, verb := q.form.Values["id"], q.form.Get("verb")
	if len(ids) == 0 {
		return "", "", errNoTask
	}
	if len(ids) > maxBulk {
		return "", "", errManyTasks
	}
	changed, refused, ended := 0, 0, 0
	progress := func() string {
		return map[string]string{
			"cancel": "Requested the cancellation of", "redrive": "Redrove", "retry": "Retried",
		}[verb] + fmt.Sprintf(" %d of %s.", changed, text.Count(len(ids), "task"))
	}
	for _, id := range ids {
		var r client.Record
		switch verb {
		case "cancel":
			r, err = q.c.Cancel(q.ctx, id)
		case "redrive":
			_, err = q.c.Redrive(q.ctx, id)
		case "retry":
			_, err = q.c.Retry(q.ctx, id)
		default:
			return "", "", errNoPage
		}
		refusal := new(client.APIError)
		isRefusal := errors.As(err, &refusal)
		if isRefusal && refusal.Status == http.StatusTooManyRequests { // so would be the other tasks
			stopped := *refusal
			stopped.Cause = strings.TrimSpace(progress() + " " + refusal.Cause)
			return "", "", &stopped
		}
		if isRefusal && refusal.Status < http.StatusInternalServerError &&
			refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
			refused++
			continue
		}
		if err != nil {
			return "", "", err
		}
		if verb == "cancel" && endedBefore(r) {
			ended++
			continue
		}
		changed++
	}
	done = progress()
	if ended > 0 {
		done += fmt.Sprintf(" %d had already ended.", ended)
	}
	if refused > 0 {
		done += fmt.Sprintf(" %d could not be changed%s.", refused, map[string]string{
			"redrive": ": only dead-lettered tasks can be redriven",
			"retry":   ": only tasks that ended without success, and whose submission is kept, can be retried",
		}[verb])
	}
	return "tasks?" + q.r.URL.RawQuery, done, nil
}

// getNewTask shows the form for a task. With the id of an earlier task, the form has that task's fields, and its
// program in place of its description once a model or the rules have written it.
func getNewTask(q *request) error {
	data := struct {
		client.Submission
		From       string // the earlier task
		Lost       string // why the submission of the earlier task is no longer known; empty if it is known
		Generation int64  // generation of the files that the earlier task found; 0 if unknown
		Kind, Text string
		Priorities []string
	}{Kind: "description", Priorities: []string{"high", "low"}, From: q.r.URL.Query().Get("from")}
	if data.From != "" {
		r, err := q.c.Get(q.ctx, data.From)
		if err != nil {
			return err
		}
		data.Submission, err = q.c.Submission(q.ctx, data.From)
		if isCode(err, errcode.NotRetryable) { // it is no longer kept; the record has the most important parts
			data.From, data.Lost, data.Submission = "", err.Error(), client.Submission{
				Session: r.Session, Task: client.Task{Code: r.Code, Description: r.Description, Pool: r.Pool},
			}
		} else if err != nil {
			return err
		}
		data.Text = data.Description
		if code := cmp.Or(r.Code, data.Code); code != "" {
			data.Kind, data.Text = "code", code
		}
		if data.Skill != "" {
			data.Kind, data.Text = "skill", data.Skill
		}
		data.Workspace = r.Workspace
		if r.Result != nil {
			data.Generation = r.Result.Workspace.Base
		}
	}
	return q.show("new", "New task", data)
}

// postNewTask submits a task. A copy of an earlier task keeps the fields of that task that the form does not have.
func postNewTask(q *request) (next, done string, err error) {
	var s client.Submission
	if from := q.form.Get("from"); from != "" {
		if s, err = q.c.Submission(q.ctx, from); err != nil {
			return "", "", err
		}
	}
	s.Session, s.Workspace = q.form.Get("session"), q.form.Get("workspace")
	s.Description, s.Code, s.Skill, s.Workflow = "", "", "", nil
	text := strings.ReplaceAll(q.form.Get("text"), "\r\n", "\n")
	switch q.form.Get("kind") {
	case "code":
		s.Code = text
	case "skill":
		s.Skill = strings.TrimSpace(text)
	default:
		s.Description = text
	}
	s.Pool, s.Priority, s.Inputs, s.Artifacts = q.form.Get("pool"), q.form.Get("priority"), nil, nil
	if inputs := strings.TrimSpace(q.form.Get("inputs")); inputs != "" {
		if !json.Valid([]byte(inputs)) {
			return "", "", &pageError{http.StatusBadRequest, "The inputs are not JSON.", `Write them as in {"city": "Paris"}.`}
		}
		s.Inputs = json.RawMessage(inputs)
	}
	for name := range strings.SplitSeq(q.form.Get("artifacts"), "\n") {
		if name = strings.TrimSpace(name); name != "" {
			s.Artifacts = append(s.Artifacts, name)
		}
	}
	files, err := q.files()
	if err != nil {
		return "", "", err
	}
	s.Files = append(s.Files, files...)
	s.IdempotencyKey = q.form.Get("key") // a form that is sent twice submits one task
	if generation := q.form.Get("generation"); generation != "" {
		if s.Workspace, err = fork(q, s.Workspace, generation, s.IdempotencyKey); err != nil {
			return "", "", err
		}
	}
	r, err := q.c.Submit(q.ctx, s)
	if err != nil {
		return "", "", err
	}
	return path("tasks", r.TaskID), "Submitted.", nil
}

// fork starts a workspace from a generation of another, and returns its name. The name depends on the key, so that a
// form that is sent twice starts one workspace.
func fork(q *request, workspace, generation, key string) (string, error) {
	from := q.c.Workspace(workspace)
	base, _, _ := strings.Cut(from.Name(), "-rerun-")
	name := base[:min(len(base), 40)] + "-rerun-" + strings.ToLower(key[:min(len(key), 10)])
	_, err := from.Fork(q.ctx, generation, name)
	if isCode(err, errcode.WorkspaceExists) { // the form was sent before
		err = nil
	}
	return name, err
}

// postTask cancels, retries or redrives a task.
func postTask(q *request) (next, done string, err error) {
	id := q.r.PathValue("id")
	switch q.r.PathValue("verb") {
	case "cancel":
		var r client.Record
		r, err = q.c.Cancel(q.ctx, id)
		switch {
		case endedBefore(r):
			done = fmt.Sprintf("The task had already ended: %s.", r.Status)
		case r.Status == client.Cancelled:
			done = "The task is cancelled."
		default:
			done = "The task will be cancelled."
		}
	case "redrive":
		_, err = q.c.Redrive(q.ctx, id)
		done = "The task is queued again."
	case "retry":
		var r client.Record
		r, err = q.c.Retry(q.ctx, id)
		id, done = cmp.Or(r.TaskID, id), "The task runs again."
	default:
		err = errNoPage
	}
	return path("tasks", id), done, err
}

// endedBefore reports whether a task had ended before it could be cancelled. r is what the request to cancel returned.
func endedBefore(r client.Record) bool { return r.Status.Terminal() && r.Status != client.Cancelled }

// getTask shows one task.
func getTask(q *request) error {
	id := q.r.PathValue("id")
	r, err := q.c.Get(q.ctx, id)
	if err != nil {
		return err
	}
	data := struct {
		taskRow
		Waits      string // what it waits for
		Calls      []client.AuditRecord
		MoreCalls  bool // whether there may be earlier calls
		Pending    []client.Approval
		Spans      waterfall
		Pictures   []client.Artifact
		Files      []client.Artifact
		Finished   bool
		CanCancel  bool
		CanRedrive bool
		CanRetry   bool
		Parent     int64 // generation of the files before the task's commit
	}{taskRow: rowOf(r), Pending: r.Pending(time.Now()), Finished: r.Status.Terminal()}
	data.CanCancel, data.CanRedrive = !data.Finished && !r.CancelRequested, r.Status == client.Dead
	data.CanRetry = data.Finished && r.Status != client.Succeeded && !data.CanRedrive
	if !data.Finished {
		if data.Waits, err = whyWaits(q, id); err != nil {
			return err
		}
	}
	if data.Calls, data.MoreCalls, err = calls(q, r); err != nil {
		return err
	}
	if r.Result != nil {
		data.Spans = waterfallOf(r.Result.TimingMS)
		data.Parent = r.Result.Workspace.Generation - 1
		for _, a := range r.Result.Artifacts {
			if isPicture(a.MediaType) {
				data.Pictures = append(data.Pictures, a)
			} else {
				data.Files = append(data.Files, a)
			}
		}
	}
	return q.show("task", "Task "+id[:min(len(id), 8)], data)
}

// whyWaits says what a task waits for. It returns "" if the task runs, has ended, or waits for approval: the page shows
// the calls that wait.
func whyWaits(q *request, id string) (string, error) {
	why, err := q.c.Why(q.ctx, id)
	if err != nil || slices.Contains([]string{"running", "ended", "approval"}, why.Rule) {
		return "", err
	}
	text := why.Message
	if why.Ahead != nil && *why.Ahead > 0 {
		text += fmt.Sprintf(" Queued tasks that start first: %d.", *why.Ahead)
	}
	if why.EstimateS != nil {
		text += fmt.Sprintf(" It starts in about %.0f s.", *why.EstimateS)
	}
	return text, nil
}

// calls returns the tool calls of a task, in the order in which they ended. It reads only the newest readLimit audit
// records: more reports whether there may be earlier calls.
func calls(q *request, r client.Record) (list []client.AuditRecord, more bool, err error) {
	records, err := q.c.Audit(q.ctx, client.AuditOptions{Task: r.TaskID, Limit: readLimit})
	if err != nil {
		return nil, false, err
	}
	for _, a := range slices.Backward(records) {
		if a.Event == "end" {
			list = append(list, a)
		}
	}
	return list, len(records) == readLimit, nil
}

// waterfall is the timeline of a task.
type waterfall struct {
	Total float64 // milliseconds
	Bars  []bar
}

// bar is a stage in a waterfall.
type bar struct {
	Name     string
	MS       float64 // duration in milliseconds
	X, Width float64 // in thousandths of the waterfall's width
}

// waterfallOf places the stages of a task one after the other. Tool calls are a part of the run.
func waterfallOf(t schemas.Timing) waterfall {
	w := waterfall{Total: t.Total}
	at := 0.0
	for _, s := range []struct {
		name string
		ms   float64
	}{
		{"queued", t.Queued},
		{"select tools", t.Select},
		{"write program", t.Generate},
		{"wait for box", t.SandboxWait},
		{"check out", t.Checkout},
		{"run", t.Run},
		{"commit", t.Commit},
	} {
		if s.ms > 0 {
			w.Bars = append(w.Bars, bar{Name: s.name, MS: s.ms, X: at})
			if s.name == "run" && t.Tools > 0 {
				w.Bars = append(w.Bars, bar{Name: "tool calls (within run)", MS: t.Tools, X: at})
			}
			at += s.ms
		}
	}
	scale := 1000 / max(at, t.Total, 0.001)
	for i := range w.Bars {
		b := &w.Bars[i]
		b.X, b.Width = b.X*scale, max(b.MS*scale, 2)
	}
	return w
}
