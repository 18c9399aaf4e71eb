package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Errors of sessions.
var (
	ErrUnknownSession    = errors.New("unknown session")
	ErrUnknownCheckpoint = errors.New("the session has no such checkpoint")
)

const (
	sessionsRetention = 90 * 24 * time.Hour
	sessionsPerTenant = 20_000 // tasks and checkpoints that are kept
	maxSessionMessage = 128 << 10
	maxSessionHeaders = 1 << 10
	defaultSession    = 100 // tasks that Session returns
	listedCheckpoints = 20  // newest checkpoints that Session returns
	workspaceInBox    = "/workspace/"
)

// Limits of the texts of a task in a session's log, in bytes. As JSON, a text may have twice as many. All texts and
// state files fit into maxSessionMessage.
const (
	maxSessionDescription = 4 << 10
	maxSessionCode        = 32 << 10
	maxSessionText        = 8 << 10  // bytes of the result, and of the output
	maxSessionFiles       = 100      // state files of a task
	maxSessionFileBytes   = 16 << 10 // bytes of their paths as JSON
)

var errLargeEntry = fmt.Errorf("the entry is larger than %d KiB", maxSessionMessage>>10)

// sessionMessage is a message of the stream SESSIONS: a task, or a checkpoint.
type sessionMessage struct {
	Task       *schemas.SessionTask       `json:"task,omitempty"`
	Checkpoint map[string]json.RawMessage `json:"checkpoint,omitempty"`
	LastTask   string                     `json:"last_task,omitempty"`
	Timestamp  time.Time                  `json:"timestamp,omitzero"`
}

func sessionSubject(tenant, session, kind string) string {
	return "sessions." + tenant + "." + session + "." + kind
}

// logSession adds the task, and the checkpoint that it has set, to the log of its session. It is called before the
// record is completed, so that the log is complete when the caller learns of the result. If the run fails after that,
// the next run's entry replaces this one. For a task that was cancelled before it ran, announce calls it, which is
// later. An entry that is too large for the log is left out.
func (r *run) logSession(ctx context.Context, result *schemas.Result) error {
	if r.rec.Session == "" {
		return nil
	}
	id := r.id + "." + strconv.Itoa(r.rec.Run)
	hide := r.w.opts.SessionText.of(ctx, r.tenant)
	entry := sessionMessage{Task: sessionTask(r.task.Summary(), result, hide)}
	if err := r.addEntry(ctx, "task", id, entry); err != nil {
		return err
	}
	if len(result.Checkpoint) > 0 {
		data, err := checkpointData(result.Checkpoint, hide)
		if err != nil {
			return err
		}
		entry = sessionMessage{Checkpoint: data, LastTask: r.id, Timestamp: result.EndedAt}
		if err := r.addEntry(ctx, "checkpoint", "c."+id, entry); err != nil {
			return err
		}
	}
	if rand.N(trimInterval) == 0 { //nolint:gosec // not a secret
		r.w.c.trimSessions(ctx, r.tenant)
	}
	return nil
}

// addEntry adds an entry to the log of the task's session, unless it is too large.
func (r *run) addEntry(ctx context.Context, kind, id string, entry sessionMessage) error {
	err := r.w.c.publishSession(ctx, sessionSubject(r.tenant, r.rec.Session, kind), id, entry)
	if errors.Is(err, errLargeEntry) {
		r.w.log.WarnContext(ctx, "session entry not added", "task_id", r.id, "entry", kind, "error", err)
		return nil
	}
	return err
}

// SessionText returns the function that replaces personal data and secrets in the texts of a tenant's sessions before
// they are stored. The text may be a JSON value. A nil SessionText, or a nil function, keeps the texts.
type SessionText func(tenant string) func(context.Context, string) string

func (f SessionText) of(ctx context.Context, tenant string) func(string) string {
	if f != nil {
		if hide := f(tenant); hide != nil {
			return func(s string) string { return hide(ctx, s) }
		}
	}
	return func(s string) string { return s }
}

func (c *Client) publishSession(ctx context.Context, subject, id string, m sessionMessage) error {
	data, err := marshalUnescaped(m)
	if err == nil && len(data) > maxSessionMessage-maxSessionHeaders {
		err = errLargeEntry
	}
	if err == nil {
		_, err = c.js.Publish(ctx, subject, data, jetstream.WithMsgID(id))
	}
	if err != nil {
		return fmt.Errorf("add to the session's log: %w", err)
	}
	return nil
}

// marshalUnescaped is like json.Marshal, but does not replace <, > and & by escape sequences of six bytes.
func marshalUnescaped(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// bounded truncates s to limit bytes, and to twice as many as JSON.
func bounded(s string, limit int) string {
	s = text.Truncate(s, limit)
	for size := jsonSize(s); size > 2*limit; size = jsonSize(s) {
		s = text.Truncate(s, len(s)*2*limit/size) // shorter, because size > 2*limit
	}
	return s
}

// jsonSize returns how many bytes s has as JSON.
func jsonSize(s string) int {
	data, _ := marshalUnescaped(s) // a string has a form as JSON
	return len(data)
}

// sessionTask returns the entry of a task in a session's log.
func sessionTask(description string, r *schemas.Result, hide func(string) string) *schemas.SessionTask {
	// hide gets the whole text, because it does not recognize a part of a value, or truncated JSON.
	logged := func(s string, limit int) string { return bounded(hide(s), limit) }
	t := &schemas.SessionTask{
		TaskID: r.TaskID, Description: logged(description, maxSessionDescription),
		Code: logged(r.Code, maxSessionCode), Result: logged(resultText(r.Result), maxSessionText),
		Output: logged(r.Output, maxSessionText), Status: r.Status, Timestamp: r.EndedAt, StartedAt: r.StartedAt,
		Workspace: r.Workspace.Name, Generation: r.Workspace.Generation,
	}
	if r.Error != nil {
		t.Error = logged(r.Error.Code+": "+r.Error.Message, maxText)
	}
	left := maxSessionFileBytes
	for _, changed := range r.Workspace.Changed {
		isState := strings.HasPrefix(changed, "state/") ||
			path.Base(changed) == changed && statedoc.CheckName(changed) == nil
		if !isState || path.Ext(changed) == "" || len(t.StateFiles) == maxSessionFiles {
			continue
		}
		file := workspaceInBox + hide(changed)
		if size := jsonSize(file); size <= left {
			t.StateFiles = append(t.StateFiles, file)
			left -= size
		}
	}
	return t
}

// resultText returns a result as a log has it: a text without quotes, nothing for null, anything else as JSON.
func resultText(result json.RawMessage) string {
	var s string
	if json.Unmarshal(result, &s) == nil && len(result) > 0 && result[0] == '"' {
		return s
	}
	if string(result) == "null" {
		return ""
	}
	return string(result)
}

// checkpointData returns the members of a checkpoint, with personal data and secrets replaced, and without those that
// the fleet sets itself. hide gets the whole object, because the name of a member may tell that its value is personal
// data.
func checkpointData(checkpoint json.RawMessage, hide func(string) string) (map[string]json.RawMessage, error) {
	var data map[string]json.RawMessage
	if err := json.Unmarshal(checkpoint, &data); err != nil {
		return nil, fmt.Errorf("decode a checkpoint: %w", err)
	}
	if data == nil {
		return nil, errors.New("decode a checkpoint: it is null")
	}
	data = nil
	if err := json.Unmarshal([]byte(hide(string(checkpoint))), &data); err != nil {
		return nil, fmt.Errorf("%w: %w", errHide, err)
	}
	for _, ours := range []string{"id", "last_task", "timestamp"} {
		delete(data, ours)
	}
	return data, nil
}

var errHide = errors.New("replace personal data in a checkpoint")

// trimSessions removes the oldest entries of a tenant's sessions above the limit.
func (c *Client) trimSessions(ctx context.Context, tenant string) {
	if _, err := c.purge(ctx, streamSessions, "sessions."+tenant+".>", sessionsPerTenant); err != nil {
		c.opts.Log.WarnContext(ctx, "old session entries not removed", "tenant", tenant, "error", err)
	}
}

// Session returns a session's log with its newest tasks, up to limit. The default limit is 100.
func (c *Client) Session(ctx context.Context, tenant, session string, limit int) (schemas.Session, error) {
	s := schemas.Session{
		SessionID: session, CustomerUID: tenant, Tasks: []schemas.SessionTask{}, StateFiles: []string{},
		Checkpoints: []schemas.CheckpointInfo{},
	}
	if schemas.CheckName("tenant", tenant) != nil || schemas.CheckName("session", session) != nil {
		return s, ErrUnknownSession
	}
	limit = min(cmp.Or(max(0, limit), defaultSession), schemas.MaxSessionTasks)
	tasks, err := c.sessionMessages(ctx, sessionSubject(tenant, session, "task"), limit)
	if err != nil {
		return s, fmt.Errorf("read session %s: %w", session, err)
	}
	checkpoints, err := c.sessionMessages(ctx, sessionSubject(tenant, session, "checkpoint"), listedCheckpoints)
	if err != nil {
		return s, fmt.Errorf("read session %s: %w", session, err)
	}
	if len(tasks) == 0 && len(checkpoints) == 0 {
		return s, ErrUnknownSession
	}
	addTasks(&s, tasks)
	for _, m := range checkpoints {
		info := schemas.CheckpointInfo{ID: m.seq, LastTask: m.LastTask, Timestamp: m.Timestamp}
		s.Checkpoints = append(s.Checkpoints, info)
		s.Checkpoint = m.checkpoint()
	}
	if len(tasks) < limit {
		return s, nil
	}
	return s, c.addOmitted(ctx, &s, len(tasks))
}

// storedMessage is a message of the stream with its sequence.
type storedMessage struct {
	sessionMessage
	session string
	seq     uint64
}

// checkpoint returns the message's checkpoint.
func (m *storedMessage) checkpoint() *schemas.Checkpoint {
	return &schemas.Checkpoint{ID: m.seq, LastTask: m.LastTask, Timestamp: m.Timestamp, Data: m.Checkpoint}
}

func parseSession(m *nats.Msg) (s storedMessage, ok bool, err error) {
	if err := json.Unmarshal(m.Data, &s.sessionMessage); err != nil {
		return s, false, err
	}
	if parts := strings.Split(m.Header.Get(jetstream.SubjectHeader), "."); len(parts) == 4 {
		s.session = parts[2]
	}
	s.seq, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	return s, true, err
}

// sessionMessages returns the last messages on a subject, the oldest first.
func (c *Client) sessionMessages(ctx context.Context, subject string, limit int) ([]storedMessage, error) {
	list, err := latest(ctx, c, streamSessions, subject, limit, parseSession)
	slices.Reverse(list)
	return list, err
}

// addTasks adds tasks to a log. Of several entries of a task, which has run again, the last one counts.
func addTasks(s *schemas.Session, messages []storedMessage) {
	last := map[string]int{} // by task id
	for i, m := range messages {
		if m.Task != nil {
			last[m.Task.TaskID] = i
		}
	}
	for i, m := range messages {
		if m.Task == nil || last[m.Task.TaskID] != i {
			continue
		}
		s.Tasks = append(s.Tasks, *m.Task)
		for _, file := range m.Task.StateFiles {
			if !slices.Contains(s.StateFiles, file) {
				s.StateFiles = append(s.StateFiles, file)
			}
		}
	}
	slices.SortStableFunc(s.Tasks, func(a, b schemas.SessionTask) int { return a.Timestamp.Compare(b.Timestamp) })
	if n := len(s.Tasks); n > 0 {
		newest, first := s.Tasks[n-1], slices.IndexFunc(messages, func(m storedMessage) bool { return m.Task != nil })
		s.StartedAt = startOf(*messages[first].Task) // tasks that end together are stored in any order
		s.EndedAt, s.Workspace = newest.Timestamp, newest.Workspace
	}
}

// startOf returns when a task started, or when it ended if it never ran.
func startOf(t schemas.SessionTask) time.Time { return cmp.Or(t.StartedAt, t.Timestamp) }

// addOmitted sets how many older tasks the log does not list, and when the session began. listed is the number of
// messages that were read.
func (c *Client) addOmitted(ctx context.Context, s *schemas.Session, listed int) error {
	subject := sessionSubject(s.CustomerUID, s.SessionID, "task")
	counts, err := c.sessionSubjects(ctx, subject)
	if err != nil {
		return fmt.Errorf("read session %s: %w", s.SessionID, err)
	}
	if s.TasksOmitted = max(0, int(counts[subject])-listed); s.TasksOmitted == 0 {
		return nil
	}
	first := map[string]any{"seq": 1, "next_by_subj": subject, "batch": 1}
	_, _, err = c.directGet(ctx, streamSessions, first, func(m *nats.Msg, _ uint64) error {
		f, _, err := parseSession(m)
		if err == nil && f.Task != nil {
			s.StartedAt = startOf(*f.Task)
		}
		return err
	})
	return err
}

// sessionSubjects returns the number of messages by subject.
func (c *Client) sessionSubjects(ctx context.Context, filter string) (map[string]uint64, error) {
	stream, err := c.js.Stream(ctx, streamSessions)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// Sessions returns the tenant's sessions, those with the newest task first, up to limit. The default limit is 100.
func (c *Client) Sessions(ctx context.Context, tenant string, limit int) ([]schemas.SessionSummary, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	all, err := c.sessions(ctx, tenant, cmp.Or(max(0, limit), defaultList))
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return all, nil
}

func (c *Client) sessions(ctx context.Context, tenant string, limit int) ([]schemas.SessionSummary, error) {
	counts, err := c.sessionSubjects(ctx, "sessions."+tenant+".>")
	if err != nil {
		return nil, err
	}
	list := map[string]*schemas.SessionSummary{}
	var tasks, checkpoints []string // subjects
	for subject := range counts {
		s := &schemas.SessionSummary{SessionID: strings.Split(subject, ".")[2]}
		list[s.SessionID] = s
		if strings.HasSuffix(subject, ".task") {
			tasks = append(tasks, subject)
		}
	}
	err = c.lastOfEach(ctx, streamSessions, tasks, func(m *nats.Msg) error {
		v, _, err := parseSession(m)
		if err != nil || v.Task == nil {
			return err
		}
		s := list[v.session]
		s.Tasks = int(counts[sessionSubject(tenant, v.session, "task")])
		s.LastTask, s.LastStatus, s.EndedAt = v.Task.TaskID, v.Task.Status, v.Task.Timestamp
		s.Workspace = v.Task.Workspace
		return nil
	})
	if err != nil {
		return nil, err
	}
	newest := slices.SortedFunc(maps.Values(list), func(a, b *schemas.SessionSummary) int {
		return cmp.Or(b.EndedAt.Compare(a.EndedAt), cmp.Compare(a.SessionID, b.SessionID))
	})
	newest = newest[:min(len(newest), limit)]
	for _, s := range newest {
		if subject := sessionSubject(tenant, s.SessionID, "checkpoint"); counts[subject] > 0 {
			checkpoints = append(checkpoints, subject)
		}
	}
	err = c.lastOfEach(ctx, streamSessions, checkpoints, func(m *nats.Msg) error {
		v, _, err := parseSession(m)
		if err == nil {
			list[v.session].Checkpoint = v.checkpoint()
		}
		return err
	})
	all := make([]schemas.SessionSummary, len(newest))
	for i, s := range newest {
		all[i] = *s
	}
	return all, err
}

// SaveCheckpoint sets a session's checkpoint, which is a JSON object. The error is ErrUnknownSession, or a
// *RefusedError for invalid data.
func (c *Client) SaveCheckpoint(
	ctx context.Context, tenant, session string, checkpoint json.RawMessage, private SessionText,
) (schemas.Session, error) {
	s, err := c.Session(ctx, tenant, session, 0)
	if err != nil {
		return s, err
	}
	if len(checkpoint) > schemas.MaxCheckpoint {
		return s, refuse(errcode.TooLarge, "", "the checkpoint is %d bytes; the limit is %d", len(checkpoint),
			schemas.MaxCheckpoint)
	}
	data, err := checkpointData(checkpoint, private.of(ctx, tenant))
	if errors.Is(err, errHide) {
		return s, err
	}
	if err != nil {
		return s, refuse(errcode.BadData, "", `a checkpoint is a JSON object, as in {"step": 3}`)
	}
	return c.setCheckpoint(ctx, s, data)
}

// ResumeSession returns a session's log. If checkpoint is not 0, the checkpoint with this id becomes the newest one
// first. The error is ErrUnknownSession or ErrUnknownCheckpoint.
func (c *Client) ResumeSession(
	ctx context.Context, tenant, session string, checkpoint uint64,
) (schemas.Session, error) {
	s, err := c.Session(ctx, tenant, session, 0)
	if err != nil || checkpoint == 0 || s.Checkpoint != nil && s.Checkpoint.ID == checkpoint {
		return s, err
	}
	var found *storedMessage
	subject := sessionSubject(tenant, session, "checkpoint")
	query := map[string]any{"seq": checkpoint, "next_by_subj": subject, "batch": 1}
	_, _, err = c.directGet(ctx, streamSessions, query, func(m *nats.Msg, seq uint64) error {
		v, _, err := parseSession(m)
		if seq == checkpoint && v.Checkpoint != nil {
			found = &v
		}
		return err
	})
	if err != nil {
		return s, fmt.Errorf("read session %s: %w", session, err)
	}
	if found == nil {
		return s, ErrUnknownCheckpoint
	}
	return c.setCheckpoint(ctx, s, found.Checkpoint)
}

// setCheckpoint makes data the newest checkpoint of a session, and returns the session with it.
func (c *Client) setCheckpoint(
	ctx context.Context, s schemas.Session, data map[string]json.RawMessage,
) (schemas.Session, error) {
	m := sessionMessage{Checkpoint: data, Timestamp: time.Now().UTC()}
	if n := len(s.Tasks); n > 0 {
		m.LastTask = s.Tasks[n-1].TaskID
	}
	subject := sessionSubject(s.CustomerUID, s.SessionID, "checkpoint")
	if err := c.publishSession(ctx, subject, nats.NewInbox(), m); err != nil {
		return s, err
	}
	return c.Session(ctx, s.CustomerUID, s.SessionID, 0)
}
