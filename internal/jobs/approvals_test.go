package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// pendingCall returns a request to approve a call of crm/drop. The call's id is name, repeated ten times.
func pendingCall(name string, d time.Duration) schemas.Approval {
	return schemas.Approval{
		Call: strings.Repeat(name, 10), Server: "crm", Tool: "drop", Signature: "drop(id)",
		Arguments: json.RawMessage(`{"id":7}`),
		ArgsHash:  "00", ArgsBytes: 8, ExpiresAt: time.Now().Add(d),
	}
}

// requestApprovals is a handler that requests approval of each call that the task's code names, and outputs the
// answers. The request for "x" expires soon.
func requestApprovals(ctx context.Context, j *Job) (*schemas.Result, error) {
	var out []string
	for call := range strings.SplitSeq(j.Task.Code, " ") {
		d := time.Minute
		if call == "x" {
			d = 50 * time.Millisecond
		}
		a, err := j.RequestApproval(ctx, pendingCall(call, d))
		if err != nil {
			return nil, err
		}
		out = append(out, strings.TrimSpace(fmt.Sprint(a.State, " ", a.By, " ", a.Reason)))
	}
	return &schemas.Result{Status: schemas.Succeeded, Output: strings.Join(out, "; ")}, nil
}

// awaitPending waits until n calls of the task are pending, and returns them.
func (f *fleet) awaitPending(t *testing.T, id string, n int) (list []schemas.PendingApproval) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pending calls", n), func() error {
		all, err := f.PendingApprovals(t.Context(), "acme")
		list = nil
		for _, w := range all {
			if w.TaskID == id {
				list = append(list, w)
			}
		}
		if err == nil && len(list) != n {
			err = fmt.Errorf("pending calls = %+v", all)
		}
		return err
	})
	return list
}

func (f *fleet) answer(t *testing.T, id, call string, approve bool) {
	t.Helper()
	if _, err := f.AnswerApproval(t.Context(), "acme", id, "alice",
		schemas.Decision{Call: strings.Repeat(call, 10), Approve: approve, Reason: "because"}); err != nil {
		t.Fatal(err)
	}
}

func TestApprovals(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: requestApprovals, Slots: 4})
	rec := f.submit(t, "1", `{"code":"a b x"}`)
	w := f.awaitPending(t, rec.TaskID, 1)[0]
	if w.Call != "aaaaaaaaaa" || string(w.Arguments) != `{"id":7}` || w.Signature != "drop(id)" ||
		w.State != schemas.ApprovalPending || w.Workspace != "main" {
		t.Errorf("pending call = %+v, want call aaaaaaaaaa of drop(id), pending", w)
	}
	refused := func(name string, tenant, id string, a schemas.Decision, by string, want error) {
		t.Helper()
		if _, err := f.AnswerApproval(t.Context(), tenant, id, by, a); !errors.Is(err, want) {
			t.Errorf("%s: AnswerApproval = %v, want %v", name, err, want)
		}
	}
	unknown := strings.Repeat("y", 26)
	first := schemas.Decision{Call: w.Call, Approve: true}
	refused("another tenant", "other", rec.TaskID, first, "eve", ErrUnknownTask)
	refused("unknown task", "acme", unknown, first, "alice", ErrUnknownTask)
	refused("no task id", "acme", "../../x", first, "alice", ErrUnknownTask)
	refused("unknown call", "acme", rec.TaskID, schemas.Decision{Call: "zzzzzzzzzz"}, "alice", ErrApprovalNotFound)
	if list, err := f.PendingApprovals(t.Context(), "other"); err != nil || len(list) != 0 {
		t.Errorf("PendingApprovals(other) = %+v, %v, want none", list, err)
	}

	f.answer(t, rec.TaskID, "a", true)
	f.answer(t, rec.TaskID, "a", true) // sent twice
	refused("another answer", "acme", rec.TaskID, schemas.Decision{Call: w.Call}, "bob", ErrAlreadyAnswered)
	refused("the same answer by another person", "acme", rec.TaskID, first, "bob", ErrAlreadyAnswered)
	f.awaitPending(t, rec.TaskID, 1)
	f.answer(t, rec.TaskID, "b", false)
	end := f.await(t, rec.TaskID)
	if want := "approved alice because; denied alice because; expired"; end.Result == nil || end.Result.Output != want {
		t.Errorf("result = %+v, want output %q", end.Result, want)
	}
	var states []string
	for _, a := range end.Approvals {
		states = append(states, a.Call[:1]+" "+a.State+" "+a.By)
		if a.Arguments != nil {
			t.Errorf("arguments after the answer = %s, want none", a.Arguments)
		}
	}
	if diff := cmp.Diff([]string{"a approved alice", "b denied alice", "x expired "}, states); diff != "" {
		t.Errorf("approvals of the record (-want +got):\n%s", diff)
	}
	refused("too late", "acme", rec.TaskID, schemas.Decision{Call: "xxxxxxxxxx", Approve: true}, "alice", ErrNotPending)
	refused("no pending call", "acme", rec.TaskID, schemas.Decision{Approve: true}, "alice", ErrApprovalNotFound)
	f.awaitPending(t, rec.TaskID, 0)
}

// The pending calls of a cancelled task are withdrawn.
func TestCancelWhileACallWaits(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: requestApprovals})
	rec := f.submit(t, "1", `{"code":"a"}`)
	f.awaitPending(t, rec.TaskID, 1)
	if _, err := f.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	end := f.await(t, rec.TaskID)
	if end.Status != schemas.Cancelled || end.Approvals[0].State != schemas.ApprovalWithdrawn {
		t.Errorf("record = %s, approvals %+v, want cancelled and withdrawn", end.Status, end.Approvals)
	}
	f.awaitPending(t, rec.TaskID, 0)
	if _, err := f.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice",
		schemas.Decision{Call: "aaaaaaaaaa", Approve: true}); !errors.Is(err, ErrNotPending) {
		t.Errorf("AnswerApproval after the end = %v, want %v", err, ErrNotPending)
	}
}

// The next run of a task finds the answer to a call and does not request it again.
func TestApprovalsOutliveARun(t *testing.T) {
	f := newFleet(t)
	var runs atomic.Int32
	lost := errors.New("lost")
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if runs.Add(1) > 2 {
			return requestApprovals(ctx, j)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watched := make(chan struct{})
		go func() { // the first run is lost once the call is pending, the second once it is answered
			defer close(watched)
			for ctx.Err() == nil {
				e, err := f.load(ctx, "acme", j.Record.TaskID)
				if err == nil && len(e.Approvals) == 1 && (runs.Load() == 1 ||
					e.Approvals[0].State == schemas.ApprovalApproved) {
					cancel(lost)
				}
			}
		}()
		_, err := j.RequestApproval(ctx, pendingCall("a", time.Minute))
		cancel(lost)
		<-watched
		return nil, errors.Join(err, lost)
	}})
	rec := f.submit(t, "1", `{"code":"a", "retry": {"backoff_s": 0.001}}`)
	f.awaitPending(t, rec.TaskID, 1)
	eventually(t, "a second run", func() error {
		if runs.Load() < 2 {
			return lost
		}
		return nil
	})
	f.awaitPending(t, rec.TaskID, 1)
	f.answer(t, rec.TaskID, "a", true)
	if end := f.await(t, rec.TaskID); end.Run != 3 || len(end.Approvals) != 1 ||
		end.Result.Output != "approved alice because" {
		t.Errorf("record = run %d, %+v, approvals %+v; want run 3, one approval", end.Run, end.Result, end.Approvals)
	}
}

// TestAnswerAllPending answers all pending calls of a task at once. An answered call does not change.
func TestAnswerAllPending(t *testing.T) {
	now := time.Now()
	pending := func(call, tool string) schemas.Approval {
		return schemas.Approval{Call: call, Tool: tool, State: schemas.ApprovalPending, ExpiresAt: now.Add(time.Hour)}
	}
	r := schemas.Record{Approvals: []schemas.Approval{
		{Call: "0", Tool: "drop", State: schemas.ApprovalDenied, By: "bob"}, pending("1", "drop"), pending("2", "send"),
	}}
	changed, err := answerApproval(&r, schemas.Decision{Approve: true}, "alice", now)
	if !changed || err != nil {
		t.Errorf("answerApproval = %v, %v, want true, nil", changed, err)
	}
	var got []string
	for _, a := range r.Approvals {
		got = append(got, fmt.Sprint(a.Call, " ", a.State, " ", a.By))
	}
	if diff := cmp.Diff([]string{"0 denied bob", "1 approved alice", "2 approved alice"}, got); diff != "" {
		t.Errorf("approvals (-want +got):\n%s", diff)
	}
}

// One answer may approve all calls of a tool.
func TestApproveAllOfTool(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: requestApprovals})
	rec := f.submit(t, "1", `{"code":"a b c"}`)
	f.awaitPending(t, rec.TaskID, 1)
	if _, err := f.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice",
		schemas.Decision{Approve: true, AllOfTool: true}); err != nil {
		t.Fatal(err)
	}
	if end := f.await(t, rec.TaskID); end.Result.Output != "approved alice; approved alice; approved alice" ||
		len(end.Approvals) != 1 {
		t.Errorf("output = %q, approvals = %+v, want one answer of alice for all three calls",
			end.Result.Output, end.Approvals)
	}
}

// lostAck is a queue that stores a record, but whose acknowledgement is lost.
type lostAck struct {
	jetstream.JetStream
	lost bool
}

// PublishMsg implements jetstream.Publisher.
func (l *lostAck) PublishMsg(
	ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if err == nil && !l.lost {
		l.lost = true
		return nil, nats.ErrTimeout
	}
	return ack, err
}

// An answer for all pending calls is no error if its first try was stored without an acknowledgement.
func TestAnswerIsStoredWithoutAck(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: requestApprovals})
	rec := f.submit(t, "1", `{"code":"a"}`)
	f.awaitPending(t, rec.TaskID, 1)
	caller := connect(t, f.opts)
	queue := &lostAck{JetStream: caller.js}
	caller.js = queue
	got, err := caller.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice", schemas.Decision{Approve: true})
	if err != nil || !queue.lost || got.Approvals[0].State != schemas.ApprovalApproved {
		t.Errorf("AnswerApproval = %+v, %v, want the call approved after a lost acknowledgement", got.Approvals, err)
	}
	_, err = caller.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice", schemas.Decision{Approve: true})
	if !errors.Is(err, ErrApprovalNotFound) {
		t.Errorf("a second AnswerApproval = %v, want %v", err, ErrApprovalNotFound)
	}
}

// A tenant's NATS user lists and answers the tenant's calls, and no others.
func TestTenantAnswersOverNATS(t *testing.T) {
	users, _ := newTenants(t)
	if err := users.fleet.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fleet{Client: users.fleet}
	f.work(t, WorkerOptions{Handler: requestApprovals})
	users.acme.opts.Producer, users.other.opts.Producer = true, true
	rec := f.submit(t, "1", `{"code":"a"}`)
	f.awaitPending(t, rec.TaskID, 1)
	list, err := users.acme.PendingApprovals(t.Context(), "acme")
	if err != nil || len(list) != 1 || list[0].TaskID != rec.TaskID {
		t.Fatalf("PendingApprovals(acme) = %+v, %v, want the task's call", list, err)
	}
	if list, err := users.other.PendingApprovals(t.Context(), "other"); err != nil || len(list) != 0 {
		t.Errorf("PendingApprovals(other) = %+v, %v, want none", list, err)
	}
	yes := schemas.Decision{Call: list[0].Call, Approve: true}
	if _, err := users.other.AnswerApproval(t.Context(), "other",
		rec.TaskID, "eve", yes); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("AnswerApproval by another tenant = %v, want %v", err, ErrUnknownTask)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := users.other.AnswerApproval(short, "acme", rec.TaskID, "eve", yes); err == nil ||
		errors.Is(err, ErrUnknownTask) {
		t.Errorf("AnswerApproval by another tenant's user = %v, want a timeout", err)
	}
	if _, err := users.acme.AnswerApproval(t.Context(), "acme", rec.TaskID, "al\x1b\nice", yes); err != nil {
		t.Fatal(err)
	}
	if _, err := users.acme.AnswerApproval(t.Context(), "acme", rec.TaskID, "bob",
		schemas.Decision{Call: yes.Call}); !errors.Is(err, ErrAlreadyAnswered) {
		t.Errorf("a second AnswerApproval = %v, want %v", err, ErrAlreadyAnswered)
	}
	if end := f.await(t, rec.TaskID); end.Result.Output != "approved nats/alice" {
		t.Errorf("output = %q, want approved nats/alice", end.Result.Output)
	}
}

func TestApprovalsAreBounded(t *testing.T) {
	var e storedRecord
	for i := range maxPending {
		if _, full := addApproval(&e.Record, schemas.Approval{
			Call:  strconv.Itoa(i),
			State: schemas.ApprovalPending,
		}); full {
			t.Fatalf("addApproval: full after %d calls", i)
		}
	}
	if _, full := addApproval(&e.Record, schemas.Approval{Call: "more", State: schemas.ApprovalPending}); !full ||
		len(e.Approvals) != maxPending {
		t.Errorf("addApproval: full = %t with %d pending calls, want true with %d", full, len(e.Approvals), maxPending)
	}
	for i := range 2 * maxApprovals {
		addApproval(&e.Record, schemas.Approval{Call: fmt.Sprint("s", i), State: schemas.ApprovalPending})
		expireApproval(&e.Record, fmt.Sprint("s", i))
		expireApproval(&e.Record, strconv.Itoa(i%maxPending))
	}
	if len(e.Approvals) > maxApprovals {
		t.Errorf("the record keeps %d calls, want at most %d", len(e.Approvals), maxApprovals)
	}
}

// A record that is full of answers for all calls of a tool drops one of them, and no pending call.
func TestPendingCallIsKept(t *testing.T) {
	r := schemas.Record{Approvals: []schemas.Approval{{Call: "pending", State: schemas.ApprovalPending}}}
	for i := 1; i < maxApprovals; i++ {
		r.Approvals = append(r.Approvals, schemas.Approval{
			Call: strconv.Itoa(i), Tool: strconv.Itoa(i), State: schemas.ApprovalApproved, AllOfTool: true,
		})
	}
	addApproval(&r, schemas.Approval{Call: "more", State: schemas.ApprovalPending})
	if len(r.Approvals) != maxApprovals || findApproval(&r, "pending") < 0 || findApproval(&r, "more") < 0 ||
		findApproval(&r, "1") >= 0 {
		t.Errorf("the record keeps %d calls, want %d: both pending ones, and not the oldest answer",
			len(r.Approvals), maxApprovals)
	}
}

// A call that a lost run made before all calls of its tool were approved is not pending when the next run makes it.
func TestApprovalOfAllEndsTheWait(t *testing.T) {
	r := schemas.Record{Approvals: []schemas.Approval{
		{Call: "1", Server: "crm", Tool: "delete", State: schemas.ApprovalPending},
		{Call: "2", Server: "crm", Tool: "delete", State: schemas.ApprovalApproved, AllOfTool: true, By: "alice"},
	}}
	addApproval(&r, schemas.Approval{Call: "1", Server: "crm", Tool: "delete", State: schemas.ApprovalPending})
	if got := r.Approvals[0]; got.State != schemas.ApprovalApproved || got.By != "alice" {
		t.Errorf("the call is %+v, want it approved by alice", got)
	}
}

// An earlier decision about a call counts more than a later approval of all calls of its tool.
func TestDeniedCallStaysDenied(t *testing.T) {
	r := schemas.Record{Approvals: []schemas.Approval{
		{Call: "1", Server: "crm", Tool: "delete", State: schemas.ApprovalDenied},
		{Call: "2", Server: "crm", Tool: "delete", State: schemas.ApprovalApproved, AllOfTool: true},
	}}
	for call, want := range map[string]string{"1": "1", "2": "2", "3": "2"} {
		got, full := addApproval(&r, schemas.Approval{
			Call: call, Server: "crm", Tool: "delete", State: schemas.ApprovalPending,
		})
		if full || got.Call != want {
			t.Errorf("the decision about call %s is %+v, want that about call %s", call, got, want)
		}
	}
}
