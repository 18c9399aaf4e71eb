package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

type listSessionsIn struct {
	Limit int `json:"limit,omitempty" jsonschema:"default 20, at most 100"`
}

type listSessionsOut struct {
	Sessions  []listedSession `json:"sessions"`
	Truncated bool            `json:"truncated,omitempty" jsonschema:"older sessions did not fit"`
}

type listedSession struct {
	SessionID    string    `json:"session_id"`
	Workspace    string    `json:"workspace"`
	Tasks        int       `json:"tasks" jsonschema:"how many are kept"`
	LastTask     string    `json:"last_task,omitempty"`
	LastStatus   string    `json:"last_status,omitempty"`
	EndedAt      time.Time `json:"ended_at,omitzero" jsonschema:"end of its latest task"`
	CheckpointID uint64    `json:"checkpoint_id,omitempty" jsonschema:"its newest checkpoint, which get_session returns"`
}

type getSessionIn struct {
	Session string `json:"session"`
	Limit   int    `json:"limit,omitempty" jsonschema:"newest tasks to return; default 20, at most 100"`
}

type getSessionOut struct {
	SessionID    string                  `json:"session_id"`
	Workspace    string                  `json:"workspace" jsonschema:"pass it to execute_task"`
	StartedAt    time.Time               `json:"started_at"`
	EndedAt      time.Time               `json:"ended_at,omitzero"`
	Checkpoint   *client.Checkpoint      `json:"checkpoint" jsonschema:"how far the work is; null if there is none"`
	Checkpoints  []client.CheckpointInfo `json:"checkpoints" jsonschema:"its newest checkpoints; pass an id to save_checkpoint to go back"`
	Tasks        []sessionTask           `json:"tasks" jsonschema:"the oldest first"`
	TasksOmitted int                     `json:"tasks_omitted,omitempty" jsonschema:"older tasks that are not listed"`
	StateFiles   []string                `json:"state_files" jsonschema:"state documents that the tasks changed"`
	Truncated    bool                    `json:"truncated,omitempty" jsonschema:"some items did not fit"`
	Hint         string                  `json:"hint,omitempty" jsonschema:"how to read what is missing"`
}

// sessionTask is a task of a session, with the beginnings of its texts and the end of its output.
type sessionTask struct {
	TaskID      string    `json:"task_id"`
	Description string    `json:"description,omitempty"`
	Status      string    `json:"status"`
	Code        string    `json:"code,omitempty"`
	Result      string    `json:"result,omitempty"`
	Output      string    `json:"output,omitempty"`
	Error       string    `json:"error,omitempty"`
	Timestamp   time.Time `json:"timestamp" jsonschema:"when it ended"`
}

type saveCheckpointIn struct {
	Session      string          `json:"session"`
	Data         json.RawMessage `json:"data,omitempty" jsonschema:"an object that says how far the work is, such as {\"step\": 3}"`
	CheckpointID uint64          `json:"checkpoint_id,omitempty" jsonschema:"or an earlier checkpoint, which becomes the newest again"`
}

type saveCheckpointOut struct {
	Success    bool      `json:"success"`
	SessionID  string    `json:"session_id"`
	Checkpoint uint64    `json:"checkpoint_id"`
	Timestamp  time.Time `json:"timestamp"`
}

func (ts *toolSet) addSessions() {
	addTool(ts, tool{
		name: "list_sessions", title: "List sessions", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[listSessionsOut](),
		text: "The sessions, the one with the latest task first. A session is the tasks that name it.",
	}, func(ctx context.Context, c *call, in listSessionsIn) (*result, error) {
		return c.listSessions(ctx, in.Limit)
	})
	addTool(ts, tool{
		name: "get_session", title: "Resume a session", scope: scopeRead, hints: readsOnly,
		out: schemaOf[getSessionOut](),
		text: "Where a session stands: its checkpoint, its tasks, the state documents they changed. To continue " +
			"it, read this, then call execute_task with session and workspace; its programs call " +
			"client.session.resume() and checkpoint(step=…).",
	}, func(ctx context.Context, c *call, in getSessionIn) (*result, error) { return c.getSession(ctx, in) })
	addTool(ts, tool{
		name: "save_checkpoint", title: "Save a checkpoint", scope: scopeSubmit, out: schemaOf[saveCheckpointOut](),
		hints: mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)},
		text: "Set the checkpoint of a session, without a program: new data, or an earlier checkpoint to go back to. " +
			"Files of the workspace do not change.",
	}, func(ctx context.Context, c *call, in saveCheckpointIn) (*result, error) {
		return c.saveCheckpoint(ctx, in)
	})
}

// listLimit returns the limit of a list, which is 20 by default and at most 100.
func listLimit(limit int) (int, error) {
	if limit < 0 || limit > 100 {
		return 0, badArgument("limit must be from 1 to 100")
	}
	return cmp.Or(limit, 20), nil
}

func (c *call) listSessions(ctx context.Context, limit int) (*result, error) {
	limit, err := listLimit(limit)
	if err != nil {
		return nil, err
	}
	all, err := c.fleet.Sessions(ctx, limit)
	if err != nil {
		return nil, err
	}
	var list []listedSession
	for _, s := range all {
		l := listedSession{
			SessionID: s.SessionID, Workspace: s.Workspace, Tasks: s.Tasks, LastTask: s.LastTask,
			LastStatus: string(s.LastStatus), EndedAt: s.EndedAt,
		}
		if s.Checkpoint != nil {
			l.CheckpointID = s.Checkpoint.ID
		}
		list = append(list, l)
	}
	fitting := listPrefix(list, c.b.o.MaxOutput-len(`{"sessions":,"truncated":true}`))
	out := listSessionsOut{Sessions: append([]listedSession{}, fitting...), Truncated: len(fitting) < len(list)}
	return &result{out: out}, nil
}

const (
	maxSessionText  = 400 // bytes of a text of a task
	maxSessionLists = 20  // checkpoints, and state documents
)

func (c *call) getSession(ctx context.Context, in getSessionIn) (*result, error) {
	limit, err := listLimit(in.Limit)
	if err != nil {
		return nil, err
	}
	s, err := c.fleet.Session(ctx, in.Session, limit)
	if err != nil {
		return nil, err
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for _, text := range []*string{&t.Description, &t.Code, &t.Result, &t.Output, &t.Error} {
			*text = c.hidden(ctx, *text)
		}
	}
	return &result{out: fitSession(s, c.b.o.MaxOutput)}, nil
}

// fitSession returns the log of a session with its newest tasks, in at most limit bytes of JSON.
func fitSession(s client.Session, limit int) getSessionOut {
	out := getSessionOut{
		SessionID: s.SessionID, Workspace: s.Workspace, StartedAt: s.StartedAt, EndedAt: s.EndedAt,
		Checkpoint: s.Checkpoint, Tasks: []sessionTask{}, TasksOmitted: s.TasksOmitted,
		Checkpoints: append([]client.CheckpointInfo{}, newest(s.Checkpoints, limit/8)...),
		StateFiles:  append([]string{}, newest(s.StateFiles, limit/8)...),
	}
	out.Truncated = len(out.Checkpoints) < len(s.Checkpoints) || len(out.StateFiles) < len(s.StateFiles)
	if jsonSize(s.Checkpoint) > limit/2 {
		out.Checkpoint = nil
		out.Hint = "the checkpoint is too long for this result: a program of the session reads it with " +
			"client.session.resume(). "
	}
	out.Hint += "get_task returns a task in full; a program of the session reads the log with client.session.log()"
	budget := limit - jsonSize(out)
	for _, t := range slices.Backward(s.Tasks) {
		short := shortened(t)
		if budget -= jsonSize(short) + len(","); budget < 0 {
			break
		}
		out.Tasks = append(out.Tasks, short)
	}
	slices.Reverse(out.Tasks)
	out.TasksOmitted += len(s.Tasks) - len(out.Tasks)
	return out
}

// newest returns the last items of a list, at most maxSessionLists of them in at most limit bytes of JSON.
func newest[T any](list []T, limit int) []T {
	first := len(list)
	for size := 0; first > 0 && len(list)-first < maxSessionLists; first-- {
		if size += jsonSize(list[first-1]) + len(","); size > limit {
			break
		}
	}
	return list[first:]
}

func shortened(t client.SessionTask) sessionTask {
	return sessionTask{
		TaskID: t.TaskID, Status: string(t.Status), Timestamp: t.Timestamp,
		Description: textStart(t.Description, maxSessionText), Code: textStart(t.Code, maxSessionText),
		Result: textStart(t.Result, maxSessionText), Output: textEnd(t.Output, maxSessionText),
		Error: textStart(t.Error, maxSessionText),
	}
}

func (c *call) saveCheckpoint(ctx context.Context, in saveCheckpointIn) (*result, error) {
	if (len(in.Data) > 0) == (in.CheckpointID > 0) {
		return nil, badArgument("pass either data or checkpoint_id")
	}
	var s client.Session
	var err error
	if in.CheckpointID > 0 {
		s, err = c.fleet.ResumeSession(ctx, in.Session, in.CheckpointID)
	} else {
		s, err = c.fleet.SaveCheckpoint(ctx, in.Session, in.Data)
	}
	if err != nil {
		return nil, err
	}
	out := saveCheckpointOut{Success: true, SessionID: s.SessionID}
	if s.Checkpoint != nil {
		out.Checkpoint, out.Timestamp = s.Checkpoint.ID, s.Checkpoint.Timestamp
	}
	return &result{out: out}, nil
}
