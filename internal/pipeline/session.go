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
	sessionTasks   = 100     // tasks in the view of a log
	maxSessionView = 1 << 20 // bytes of the view
)

// writeSession writes the view of the log of the task's session into the workspace. The view alone makes no commit.
func (p *Pipeline) writeSession(ctx context.Context, t task, tree *state.Tree) (*executor.TaskSession, error) {
	r := t.job.Record
	if r.Session == "" || p.Sessions == nil {
		return nil, nil
	}
	log, err := p.Sessions.Session(ctx, r.Tenant, r.Session, sessionTasks)
	if errors.Is(err, jobs.ErrUnknownSession) { // this is its first task
		log.Workspace, log.StartedAt, err = r.Workspace, r.StartedAt, nil
	}
	if err != nil {
		return nil, orCause(ctx, err)
	}
	view, err := sessionView(log)
	if err != nil {
		return nil, fmt.Errorf("write the view of session %s: %w", r.Session, err)
	}
	file := sessionFile(r.Session, tree.Names(sessionDir))
	for _, name := range []string{file, currentSession} {
		err := tree.WriteView(name, view)
		if isDiskFull(err) {
			return nil, fmt.Errorf("write the view of session %s: %w", r.Session, err)
		}
		if err != nil {
			return nil, &schemas.Error{
				Code: errcode.BadFile, Message: fmt.Sprintf("the view of the session's log: %v", err),
				Hint: "the fleet keeps the logs of sessions in the directory sessions of the workspace: " +
					"remove or rename the file of that name",
			}
		}
	}
	return &executor.TaskSession{Name: r.Session, File: file}, nil
}

// withoutViews returns the changed paths without the views of the session's log.
func withoutViews(changed []string, session *executor.TaskSession) []string {
	if session == nil {
		return changed
	}
	return slices.DeleteFunc(changed, func(name string) bool {
		return name == session.File || name == currentSession || name == sessionDir
	})
}

// sessionView returns a log as JSON. It leaves out the oldest tasks if the log is too large.
func sessionView(log schemas.Session) ([]byte, error) {
	for {
		view, err := json.MarshalIndent(log, "", "  ")
		if err != nil || len(view) <= maxSessionView || len(log.Tasks) <= 1 {
			return append(view, '\n'), err
		}
		n := len(log.Tasks)/4 + 1
		log.Tasks, log.TasksOmitted = log.Tasks[n:], log.TasksOmitted+n
	}
}

// sessionFile returns the path of a session's view. Not every file system can hold two names that differ by case only,
// so the second one has a suffix. names are the existing files.
func sessionFile(session string, names []string) string {
	file := path.Join(sessionDir, session+".json")
	collides := func(name string) bool { return name != file && strings.EqualFold(name, file) }
	taken := !slices.Contains(names, file) && slices.ContainsFunc(names, collides)
	if taken || strings.EqualFold(file, currentSession) {
		return path.Join(sessionDir, fmt.Sprintf("%s~%08x.json", session, crc32.ChecksumIEEE([]byte(session))))
	}
	return file
}
