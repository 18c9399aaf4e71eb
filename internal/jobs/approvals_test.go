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

	"github.com/codefleet/codefleet/schemas"
)

// question returns a request to approve a call of crm/drop; names have ten letters.
func question(call string, d time.Duration) schemas.Approval {
	return schemas.Approval{
		Call: strings.Repeat(call, 10), Server: "crm", Tool: "drop", Signature: "drop(id)",
		Arguments: json.RawMessage(`{"id":7}`),
		ArgsHash:  "00", ArgsBytes: 8, ExpiresAt: time.Now().Add(d),
	}
}

// asks is a handler that requests approval of the calls that the task's code names, one after the other, and prints the
// answers. The request for "x" expires soon.
func asks(ctx context.Context, j *Job) (*schemas.Result, error) {
	var out []string
	for call := range strings.SplitSeq(j.Task.Code, " ") {
		d := time.Minute
		if call == "x" {
			d = 50 * time.Millisecond
		}
		a, err := j.RequestApproval(ctx, question(call, d))
		if err != nil {
			return nil, err
		}
		out = append(out, strings.TrimSpace(fmt.Sprint(a.State, " ", a.By, " ", a.Reason)))
	}
	return &schemas.Result{Status: schemas.Succeeded, Output: strings.Join(out, "; ")}, nil
}

// waits waits until n calls of the task are pending, and returns them.
func (f *fleet) waits(t *testing.T, id string, n int) (list []schemas.PendingApproval) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls that wait", n), func() error {
		all, err := f.PendingApprovals(t.Context(), "acme")
		list = nil
		for _, w := range all {
			if w.TaskID == id {
				list = append(list, w)
			}
		}
		if err == nil && len(list) != n {
			err = fmt.Errorf("%+v wait", all)
		}
		return err
	})
	return list
}

func (f *fleet) answer(t *testing.T, id, call string, approve bool) {
	t.Helper()
	if _, err := f.AnswerApproval(t.Context(), "acme", id, "alice",
		schemas.Answer{Call: strings.Repeat(call, 10), Approve: approve, Reason: "because"}); err != nil {
		t.Fatal(err)
	}
}

func TestApprovals(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: asks, Slots: 4})
	rec := f.submit(t, "1", `{"code":"a b x"}`)
	w := f.waits(t, rec.TaskID, 1)[0]
	if w.Call != "aaaaaaaaaa" || string(w.Arguments) != `{"id":7}` || w.Signature != "drop(id)" ||
		w.State != schemas.ApprovalPending || w.Workspace != "main" {
		t.Errorf("what waits is %+v", w)
	}
	refused := func(what string, tenant, id string, a schemas.Answer, by string, want error) {
		t.Helper()
		if _, err := f.AnswerApproval(t.Context(), tenant, id, by, a); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	unknown := strings.Repeat("y", 26)
	first := schemas.Answer{Call: w.Call, Approve: true}
	refused("another tenant", "other", rec.TaskID, first, "eve", ErrUnknownTask)
	refused("unknown task", "acme", unknown, first, "alice", ErrUnknownTask)
	refused("no task id", "acme", "../../x", first, "alice", ErrUnknownTask)
	refused("unknown call", "acme", rec.TaskID, schemas.Answer{Call: "zzzzzzzzzz"}, "alice", ErrApprovalNotFound)
	if list, err := f.PendingApprovals(t.Context(), "other"); err != nil || len(list) != 0 {
		t.Errorf("another tenant sees %+v, %v", list, err)
	}

	f.answer(t, rec.TaskID, "a", true)
	f.answer(t, rec.TaskID, "a", true) // sent twice
	refused("the second answer", "acme", rec.TaskID, schemas.Answer{Call: w.Call}, "bob", ErrAlreadyAnswered)
	refused("the same of another", "acme", rec.TaskID, first, "bob", ErrAlreadyAnswered)
	f.waits(t, rec.TaskID, 1)
	f.answer(t, rec.TaskID, "b", false)
	end := f.end(t, rec.TaskID)
	if want := "approved alice because; denied alice because; expired"; end.Result == nil || end.Result.Output != want {
		t.Errorf("the program heard %+v, want %q", end.Result, want)
	}
	var states []string
	for _, a := range end.Approvals {
		states = append(states, a.Call[:1]+" "+a.State+" "+a.By)
		if a.Arguments != nil {
			t.Errorf("arguments are kept after the answer: %s", a.Arguments)
		}
	}
	if diff := cmp.Diff([]string{"a approved alice", "b denied alice", "x expired "}, states); diff != "" {
		t.Errorf("the record after (-want +got):\n%s", diff)
	}
	refused("too late", "acme", rec.TaskID, schemas.Answer{Call: "xxxxxxxxxx", Approve: true}, "alice", ErrNotPending)
	refused("all, of none", "acme", rec.TaskID, schemas.Answer{Approve: true}, "alice", ErrApprovalNotFound)
	f.waits(t, rec.TaskID, 0)
}

// The pending calls of a cancelled task are withdrawn.
func TestCancelWhileACallWaits(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: asks})
	rec := f.submit(t, "1", `{"code":"a"}`)
	f.waits(t, rec.TaskID, 1)
	if _, err := f.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	end := f.end(t, rec.TaskID)
	if end.Status != schemas.Cancelled || end.Approvals[0].State != schemas.ApprovalWithdrawn {
		t.Errorf("cancelled while it waited: %s, %+v", end.Status, end.Approvals)
	}
	f.waits(t, rec.TaskID, 0)
	if _, err := f.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice",
		schemas.Answer{Call: "aaaaaaaaaa", Approve: true}); !errors.Is(err, ErrNotPending) {
		t.Errorf("an answer after that: %v", err)
	}
}

// The next run of a task finds the answer to a call: it is requested once.
func TestApprovalsOutliveARun(t *testing.T) {
	f := newFleet(t)
	var runs atomic.Int32
	lost := errors.New("lost")
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if runs.Add(1) > 2 {
			return asks(ctx, j)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		heard := make(chan struct{})
		go func() { // this run is lost once the call waits, and the second one once it is answered
			defer close(heard)
			for ctx.Err() == nil {
				e, err := f.load(ctx, "acme", j.Record.TaskID)
				if err == nil && len(e.Approvals) == 1 && (runs.Load() == 1 ||
					e.Approvals[0].State == schemas.ApprovalApproved) {
					cancel(lost)
				}
			}
		}()
		_, err := j.RequestApproval(ctx, question("a", time.Minute))
		cancel(lost)
		<-heard
		return nil, errors.Join(err, lost)
	}})
	rec := f.submit(t, "1", `{"code":"a", "retry": {"backoff_s": 0.001}}`)
	f.waits(t, rec.TaskID, 1)
	eventually(t, "a second run", func() error {
		if runs.Load() < 2 {
			return lost
		}
		return nil
	})
	if n := len(f.waits(t, rec.TaskID, 1)); n != 1 {
		t.Errorf("asked %d times", n)
	}
	f.answer(t, rec.TaskID, "a", true)
	if end := f.end(t, rec.TaskID); end.Run != 3 || len(end.Approvals) != 1 ||
		end.Result.Output != "approved alice because" {
		t.Errorf("after three runs: %+v, approvals %+v", end.Result, end.Approvals)
	}
}

// One answer may approve all calls of a tool, and one all pending calls.
func TestApproveAllOfTool(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: asks})
	rec := f.submit(t, "1", `{"code":"a b c"}`)
	f.waits(t, rec.TaskID, 1)
	if _, err := f.AnswerApproval(t.Context(), "acme", rec.TaskID, "alice",
		schemas.Answer{Approve: true, AllOfTool: true}); err != nil {
		t.Fatal(err)
	}
	if end := f.end(t, rec.TaskID); end.Result.Output != "approved alice; approved alice; approved alice" ||
		len(end.Approvals) != 1 {
		t.Errorf("%q, %+v", end.Result.Output, end.Approvals)
	}
}

// The NATS user of a tenant lists and answers the tenant's calls, and no others.
func TestTenantAnswersOverNATS(t *testing.T) {
	users, _ := newTwo(t)
	if err := users.fleet.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fleet{Client: users.fleet}
	f.work(t, WorkerOptions{Handler: asks})
	users.acme.opts.Producer, users.other.opts.Producer = true, true
	rec := f.submit(t, "1", `{"code":"a"}`)
	f.waits(t, rec.TaskID, 1)
	list, err := users.acme.PendingApprovals(t.Context(), "acme")
	if err != nil || len(list) != 1 || list[0].TaskID != rec.TaskID {
		t.Fatalf("what waits, as its tenant sees it: %+v, %v", list, err)
	}
	if list, err := users.other.PendingApprovals(t.Context(), "other"); err != nil || len(list) != 0 {
		t.Errorf("as another sees it: %+v, %v", list, err)
	}
	yes := schemas.Answer{Call: list[0].Call, Approve: true}
	if _, err := users.other.AnswerApproval(t.Context(), "other",
		rec.TaskID, "eve", yes); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("the answer of another tenant: %v, want %v", err, ErrUnknownTask)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := users.other.AnswerApproval(short, "acme", rec.TaskID, "eve", yes); err == nil ||
		errors.Is(err, ErrUnknownTask) {
		t.Errorf("the answer of another in the tenant's name: %v, want a timeout", err)
	}
	if _, err := users.acme.AnswerApproval(t.Context(), "acme", rec.TaskID, "al\x1b\nice", yes); err != nil {
		t.Fatal(err)
	}
	if _, err := users.acme.AnswerApproval(t.Context(), "acme", rec.TaskID, "bob",
		schemas.Answer{Call: yes.Call}); !errors.Is(err, ErrAlreadyAnswered) {
		t.Errorf("a second answer: %v", err)
	}
	if end := f.end(t, rec.TaskID); end.Result.Output != "approved nats/alice" {
		t.Errorf("%q", end.Result.Output)
	}
}

func TestApprovalsAreBounded(t *testing.T) {
	var e storedRecord
	for i := range maxPending {
		if _, full := addApproval(&e.Record, schemas.Approval{
			Call:  strconv.Itoa(i),
			State: schemas.ApprovalPending,
		}); full {
			t.Fatalf("full after %d", i)
		}
	}
	if _, full := addApproval(&e.Record, schemas.Approval{Call: "more", State: schemas.ApprovalPending}); !full ||
		len(e.Approvals) != maxPending {
		t.Errorf("%d calls wait, full %t", len(e.Approvals), full)
	}
	for i := range 2 * maxApprovals {
		addApproval(&e.Record, schemas.Approval{Call: fmt.Sprint("s", i), State: schemas.ApprovalPending})
		expireApproval(&e.Record, fmt.Sprint("s", i))
		expireApproval(&e.Record, strconv.Itoa(i%maxPending))
	}
	if len(e.Approvals) > maxApprovals {
		t.Errorf("%d calls are remembered, want at most %d", len(e.Approvals), maxApprovals)
	}
}
