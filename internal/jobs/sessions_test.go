package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// private replaces an e-mail address, and a number that is personal data according to its member's name, phone.
func private(string) func(context.Context, string) string {
	return func(_ context.Context, s string) string {
		return strings.NewReplacer("a@b.example", "[email]", `"phone": 442079460958`, `"phone": "[phone]"`).Replace(s)
	}
}

// TestSessions runs 20 concurrent tasks of one session and reads the log.
func TestSessions(t *testing.T) {
	f := newFleet(t)
	ctx := t.Context()
	const n = 20
	f.work(t, WorkerOptions{
		Slots: n,
		Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
			return &schemas.Result{
				Status: schemas.Succeeded, Code: j.Task.Code, Result: json.RawMessage(`"for a@b.example"`),
				Workspace:  schemas.WorkspaceChange{Changed: []string{"state.json", "x/y.json", "state/plan.yaml"}},
				Checkpoint: json.RawMessage(`{"step": 1, "id": "mine", "context": ["a@b.example"], "phone": 442079460958}`),
			}, nil
		},
		Hooks: Hooks{SessionText: private},
	})
	if _, err := f.Session(ctx, "acme", "customer_A", 0); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("Session() before the first task = %v, want ErrUnknownSession", err)
	}
	for i := range n {
		ev := taskEvent(fmt.Sprint("s", i), fmt.Sprintf(`{"code":"print(%d)"}`, i))
		ev.SetExtension("session", "customer_A")
		if _, err := f.Submit(ctx, "acme", ev); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitEmpty(t)
	log, err := f.Session(ctx, "acme", "customer_A", 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, task := range log.Tasks {
		codes[task.Code] = true
		if task.Result != "for [email]" || task.Status != schemas.Succeeded || task.Description == "" {
			t.Errorf("task = %+v, want a description, and its result with a token", task)
		}
	}
	if len(log.Tasks) != n || len(codes) != n {
		t.Errorf("the log has %d tasks with %d programs, want %d", len(log.Tasks), len(codes), n)
	}
	if got := fmt.Sprint(log.StateFiles); got != "[/workspace/state.json /workspace/state/plan.yaml]" {
		t.Errorf("state files = %s, want state.json and state/plan.yaml", got)
	}
	c := log.Checkpoint
	if c == nil || string(c.Data["context"]) != `["[email]"]` || string(c.Data["phone"]) != `"[phone]"` ||
		c.Data["id"] != nil || c.LastTask == "" {
		t.Errorf("checkpoint = %+v, want the fleet's id, and its context and phone with tokens", c)
	}
	if other, err := f.Session(ctx, "beta", "customer_A", 0); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("Session() of another tenant = %+v, %v; want ErrUnknownSession", other, err)
	}
	newest, err := f.Session(ctx, "acme", "customer_A", 5)
	if err != nil || len(newest.Tasks) != 5 || newest.TasksOmitted != n-5 || !newest.StartedAt.Equal(log.StartedAt) {
		t.Errorf("Session(limit 5) has %d tasks, omits %d, began %s, %v; want 5, %d, %s",
			len(newest.Tasks), newest.TasksOmitted, newest.StartedAt, err, n-5, log.StartedAt)
	}

	testCheckpoints(t, f, log)
}

// Tasks that are cancelled before they run are in the session's log, once a worker gets their messages.
func TestCancelledTasksAreLogged(t *testing.T) {
	f := newFleet(t)
	queued := f.submit(t, "queued", `{"code":"x"}`, "session", "s")
	later := f.submit(t, "later", `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`, "session", "s")
	cancel := func(id string) {
		t.Helper()
		if rec, err := f.Cancel(t.Context(), "acme", id); err != nil || rec.Status != schemas.Cancelled {
			t.Errorf("Cancel = %+v, %v, want cancelled", rec, err)
		}
	}
	cancel(queued.TaskID)
	f.work(t, WorkerOptions{Handler: func(context.Context, *Job) (*schemas.Result, error) {
		t.Error("a cancelled task runs")
		return nil, errors.New("cancelled")
	}})
	f.awaitEmpty(t) // later waits in DELAYED
	cancel(later.TaskID)
	eventually(t, "both tasks", func() error {
		log, err := f.Session(t.Context(), "acme", "s", 0)
		if err != nil || len(log.Tasks) != 2 || log.Tasks[0].TaskID != queued.TaskID ||
			log.Tasks[1].TaskID != later.TaskID || log.Tasks[1].Status != schemas.Cancelled {
			return fmt.Errorf("log = %+v, %w, want both tasks", log.Tasks, err)
		}
		return nil
	})
	f.awaitEmpty(t)
	if n := streamState(t, f, streamDelayed).Msgs; n != 0 {
		t.Errorf("DELAYED has %d messages, want none", n)
	}
	if _, _, err := f.Submitted(t.Context(), "acme", queued.TaskID); err != nil {
		t.Errorf("Submitted = %v, want the event", err)
	}
}

func testCheckpoints(t *testing.T, f *fleet, log schemas.Session) {
	t.Helper()
	ctx := t.Context()
	first := log.Checkpoints[0].ID
	saved, err := f.SaveCheckpoint(ctx, "acme", "customer_A", json.RawMessage(`{"step": 2}`), nil)
	if err != nil || string(saved.Checkpoint.Data["step"]) != "2" {
		t.Fatalf("SaveCheckpoint() = %+v, %v; want step 2", saved.Checkpoint, err)
	}
	resumed, err := f.ResumeSession(ctx, "acme", "customer_A", first)
	if err != nil || string(resumed.Checkpoint.Data["step"]) != "1" || resumed.Checkpoint.ID <= saved.Checkpoint.ID {
		t.Errorf("ResumeSession(%d) = %+v, %v; want step 1 as the newest", first, resumed.Checkpoint, err)
	}
	if _, err := f.ResumeSession(ctx, "acme", "customer_A", 1); !errors.Is(err, ErrUnknownCheckpoint) {
		t.Errorf("ResumeSession(1) = %v, want ErrUnknownCheckpoint", err)
	}
	saved, err = f.SaveCheckpoint(ctx, "acme", "customer_A",
		json.RawMessage(`{"to": [{"a@b.example": true}], "phone": 442079460958}`), private)
	if err != nil || string(saved.Checkpoint.Data["to"]) != `[{"[email]":true}]` ||
		string(saved.Checkpoint.Data["phone"]) != `"[phone]"` {
		t.Errorf("SaveCheckpoint() with personal data = %s, %v; want tokens", saved.Checkpoint.Data, err)
	}
	withheld := func(string) func(context.Context, string) string {
		return func(context.Context, string) string { return "(withheld: no key)" }
	}
	_, err = f.SaveCheckpoint(ctx, "acme", "customer_A", json.RawMessage(`{"to": "a@b.example"}`), withheld)
	if err == nil || strings.Contains(err.Error(), "a@b.example") {
		t.Errorf("SaveCheckpoint() without a key = %v, want an error without the address", err)
	}
	for _, bad := range []string{`[1]`, `null`, `{`, `{"a": "` + strings.Repeat("x", schemas.MaxCheckpoint) + `"}`} {
		_, err := f.SaveCheckpoint(ctx, "acme", "customer_A", json.RawMessage(bad), nil)
		if _, ok := errors.AsType[*RefusedError](err); !ok {
			t.Errorf("SaveCheckpoint(%.20s) = %v, want it refused", bad, err)
		}
	}
	for _, name := range []string{"nosuch", "Customer_A", "../x", "*", ">", "a.b"} {
		if _, err := f.SaveCheckpoint(ctx, "acme", name, json.RawMessage(`{}`), nil); !errors.Is(err, ErrUnknownSession) {
			t.Errorf("SaveCheckpoint(%q) = %v, want ErrUnknownSession", name, err)
		}
	}
	list, err := f.Sessions(ctx, "acme", 0)
	if err != nil || len(list) != 1 || list[0].SessionID != "customer_A" || list[0].Tasks != 20 ||
		list[0].Checkpoint == nil {
		t.Errorf("Sessions() = %+v, %v; want customer_A with 20 tasks and a checkpoint", list, err)
	}
}

// Texts that are larger as JSON, and entries that are too large for the log, do not keep a task from completing.
func TestSessionEntryIsBounded(t *testing.T) {
	f := newFleet(t)
	long := strings.Repeat("\x01", 40<<10)
	code := strings.Repeat("<b>a && b</b>\n", 2500)
	var files []string
	for i := range maxSessionFiles {
		files = append(files, fmt.Sprintf("state/%s%d.json", strings.Repeat("x", 4000), i))
	}
	swollen := func(string) func(context.Context, string) string { // as if tokens were longer than what they replace
		return func(_ context.Context, s string) string {
			return strings.Replace(s, `{"big":""}`, `{"big":"`+strings.Repeat("x", maxSessionMessage)+`"}`, 1)
		}
	}
	f.work(t, WorkerOptions{
		Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
			r := &schemas.Result{
				Status: schemas.Succeeded, Code: code, Checkpoint: json.RawMessage(`{"big":""}`),
				Workspace: schemas.WorkspaceChange{Changed: files},
			}
			if j.Task.Code == "long" {
				r.Code, r.Output = long, long
			}
			return r, nil
		},
		Hooks: Hooks{SessionText: swollen},
	})
	for _, id := range []string{"html", "long"} {
		if rec := f.await(t, f.submit(t, id, `{"code":"`+id+`"}`, "session", "s").TaskID); rec.Run != 1 {
			t.Errorf("task %s ended after %d runs, want one", id, rec.Run)
		}
	}
	log, err := f.Session(t.Context(), "acme", "s", 0)
	if err != nil || len(log.Tasks) != 2 || log.Checkpoint != nil {
		t.Fatalf("Session = %d tasks, checkpoint %v, %v; want two without the checkpoint", len(log.Tasks),
			log.Checkpoint, err)
	}
	html, other := log.Tasks[0], log.Tasks[1]
	if n := len(html.Code); n != maxSessionCode || !strings.HasPrefix(code, strings.TrimSuffix(html.Code, "…")) {
		t.Errorf("the log has %d bytes of the code, want its first %d", n, maxSessionCode)
	}
	if n := jsonSize(other.Code); n > 2*maxSessionCode || n < maxSessionCode {
		t.Errorf("code of control characters has %d bytes as JSON, want up to %d", n, 2*maxSessionCode)
	}
	if n := len(html.StateFiles); n == 0 || n > maxSessionFileBytes/4000 {
		t.Errorf("the log has %d files with paths of 4,000 bytes, want those in %d bytes", n, maxSessionFileBytes)
	}
}

// TestManySessions lists more sessions than the server permits subjects in one request.
func TestManySessions(t *testing.T) {
	f := newFleet(t)
	const n = 1100
	store := func(i int, kind string, m sessionMessage) {
		t.Helper()
		data, err := json.Marshal(m)
		if err == nil {
			_, err = f.js.Publish(t.Context(), sessionSubject("acme", fmt.Sprint("s", i), kind), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		at := begun.Add(time.Duration(i) * time.Second)
		store(i, "task", sessionMessage{Task: &schemas.SessionTask{TaskID: strconv.Itoa(i), Timestamp: at}})
		if i%2 == 0 {
			store(i, "checkpoint", sessionMessage{LastTask: strconv.Itoa(i), Checkpoint: map[string]json.RawMessage{}})
		}
	}
	for _, limit := range []int{1, 600, n + 1} {
		list, err := f.Sessions(t.Context(), "acme", limit)
		if err != nil || len(list) != min(limit, n) {
			t.Fatalf("Sessions(%d) has %d sessions, %v; want %d", limit, len(list), err, min(limit, n))
		}
		for i, s := range list {
			want := n - 1 - i
			if s.SessionID != fmt.Sprint("s", want) || s.Tasks != 1 || s.LastTask != strconv.Itoa(want) ||
				(s.Checkpoint != nil) != (want%2 == 0) {
				t.Fatalf("session %d of %d = %+v, want s%d with a task", i, limit, s, want)
			}
		}
	}
}

func TestPurgeReportsErrors(t *testing.T) {
	f := newFleet(t)
	if n, err := f.purge(t.Context(), "NONE", "none.>", 1); err == nil {
		t.Errorf("purge() of a stream that does not exist = %d, nil; want an error", n)
	}
}
