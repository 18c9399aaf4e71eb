package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Sessions has the logs of sessions. *jobs.Client implements it.
type Sessions interface {
	// Session returns a session's log with its newest tasks. The error is jobs.ErrUnknownSession if no task of the
	// session has ended.
	Session(ctx context.Context, tenant, session string, limit int) (schemas.Session, error)
}

const (
	sessionDir     = "sessions"
	currentSession = sessionDir + "/current_session.json"
	sessionTasks   = 100     // most tasks in a view
	maxSessionView = 1 << 20 // most bytes of a view
)

// writeSession writes the view of the task's session into the workspace. If the previous task of the workspace belongs
// to another session, writeSession writes the view of that session again: the previous task is missing in it, because a
// task is logged only after its workspace is committed. The views alone make no commit.
func (p *Pipeline) writeSession(ctx context.Context, t task, c *checkout) error {
	r := t.job.Record
	if r.Session == "" || p.Queue.Sessions == nil {
		return nil
	}
	names := c.tree.Paths(sessionDir)
	previous := previousSession(c.tree)
	log, err := p.Queue.Sessions.Session(ctx, r.Tenant, r.Session, sessionTasks)
	if errors.Is(err, jobs.ErrUnknownSession) { // no task of the session has ended yet
		log.Workspace, log.StartedAt, err = r.Workspace, r.StartedAt, nil
	}
	if err != nil {
		return withCause(ctx, err)
	}
	file := sessionFile(r.Session, names)
	if err := c.writeView(log, file, currentSession); err != nil {
		return err
	}
	c.session = &executor.TaskSession{Name: r.Session, File: file}
	if previous == "" || previous == r.Session {
		return nil
	}
	log, err = p.Queue.Sessions.Session(ctx, r.Tenant, previous, sessionTasks)
	if errors.Is(err, jobs.ErrUnknownSession) { // the log has expired, or a program has written the name
		return nil
	}
	if err != nil {
		return withCause(ctx, err)
	}
	return c.writeView(log, sessionFile(previous, names))
}

// previousSession returns the session of the last task that committed the view of its session, or "".
func previousSession(tree *state.Tree) string {
	data, err := tree.ReadFile(currentSession, maxSessionView)
	if err != nil {
		return ""
	}
	var log struct {
		SessionID string `json:"session_id"`
	}
	if json.Unmarshal(data, &log) != nil || schemas.CheckName("session", log.SessionID) != nil {
		return "" // a program has written the file
	}
	return log.SessionID
}

// writeView writes the view of a log to files.
func (c *checkout) writeView(log schemas.Session, files ...string) error {
	view, err := sessionView(log)
	if err != nil {
		return fmt.Errorf("write the view of session %s: %w", log.SessionID, err)
	}
	for _, name := range files {
		err := c.tree.WriteView(name, view)
		if isDiskFull(err) {
			return fmt.Errorf("write the view of session %s: %w", log.SessionID, err)
		}
		if err != nil {
			return &schemas.Error{
				Code: errcode.BadFile, Message: fmt.Sprintf("the view of the session's log: %v", err),
				Hint: "the fleet writes the logs of sessions to the directory \"sessions\" of the workspace: " +
					"if a file has that name, remove or rename it",
			}
		}
		c.views = append(c.views, name)
	}
	return nil
}

// withoutViews returns the changed paths without the views of sessions.
func withoutViews(changed, views []string) []string {
	if len(views) == 0 {
		return changed
	}
	return slices.DeleteFunc(slices.Clone(changed), func(name string) bool {
		return name == sessionDir || slices.Contains(views, name)
	})
}

// sessionView returns a log as JSON. It leaves out the oldest tasks if the log is too large. The view is indented
// unless that makes it too large, as with a deep checkpoint.
func sessionView(log schemas.Session) ([]byte, error) {
	for {
		view, err := json.Marshal(log)
		if err != nil || len(view) < maxSessionView || len(log.Tasks) <= 1 {
			return append(text.IndentJSON(view, "  ", maxSessionView-1), '\n'), err
		}
		n := len(log.Tasks)/4 + 1
		log.Tasks, log.TasksOmitted = log.Tasks[n:], log.TasksOmitted+n
	}
}

// sessionFile returns the path of a session's view. Not every file system can hold two names that differ by case only,
// so the second one has a suffix, and so has one that would be current_session.json. names are the existing files.
func sessionFile(session string, names []string) string {
	file := path.Join(sessionDir, session+".json")
	collides := func(name string) bool { return name != file && strings.EqualFold(name, file) }
	taken := !slices.Contains(names, file) && slices.ContainsFunc(names, collides)
	if taken || strings.EqualFold(file, currentSession) {
		return path.Join(sessionDir, fmt.Sprintf("%s~%08x.json", session, crc32.ChecksumIEEE([]byte(session))))
	}
	return file
}
