package jobs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// failing returns a handler that fails until healed is set.
func failing(healed *atomic.Bool) Handler {
	return func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if !healed.Load() {
			return nil, errors.New("the disk is full")
		}
		return succeed(ctx, j)
	}
}

// A dead-lettered task is redriven under its id, with all attempts again, whether its data is in the message or in the
// object store. Its dead letter is removed; if it dies again, it has a new one.
func TestRedrive(t *testing.T) {
	for name, code := range map[string]string{"small": "x", "large": strings.Repeat("x", inlineMax+1)} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			var healed atomic.Bool
			f.work(t, WorkerOptions{Handler: failing(&healed)})
			data := `{"code":"` + code + `","retry":{"attempts":2,"backoff_s":0.01}}`
			dead := f.await(t, f.submit(t, "1", data).TaskID)
			if dead.Status != schemas.Dead || dead.Run != 2 {
				t.Fatalf("record = %+v, want dead after 2 runs", dead)
			}
			for _, want := range []struct {
				status schemas.Status
				run    int
			}{{schemas.Dead, 4}, {schemas.Succeeded, 5}} {
				healed.Store(want.status == schemas.Succeeded)
				again, err := f.Redrive(t.Context(), "acme", dead.TaskID)
				if err != nil || again.TaskID != dead.TaskID || again.Status != schemas.Queued || again.Result != nil {
					t.Fatalf("Redrive = %+v, %v, want it queued", again, err)
				}
				end := f.await(t, dead.TaskID)
				if end.Status != want.status || end.Run != want.run || len(end.Attempts) != want.run {
					t.Errorf("record = %+v, want %+v and all runs", end, want)
				}
				for i, a := range end.Attempts {
					if old := a.Run <= again.Run; a.Run != i+1 || a.Redriven != old || old && a.Error == "" {
						t.Errorf("run %d after a redrive of run %d = %+v, want only earlier runs redriven",
							i+1, again.Run, a)
					}
				}
				letters, err := f.DeadLetters(t.Context(), "acme", "", 5)
				if err != nil || (len(letters) == 1) != (want.status == schemas.Dead) {
					t.Errorf("DeadLetters = %+v, %v, want one only if the task is dead", letters, err)
				}
			}
			f.awaitEmpty(t)
		})
	}
}

// A task that is refused before it runs, redriven at once, and refused again has a dead letter again, with its data.
func TestRedriveRefusedTwice(t *testing.T) {
	policy := func(string) (TenantPolicy, bool) { return TenantPolicy{Pools: []string{"default"}}, true }
	f := newFleet(t, func(o *Options) { o.Policy = policy })
	f.work(t, WorkerOptions{Handler: succeed})
	f.publish(t, "tasks.gpu.normal.acme", ceHeader("gpu"), `{"code":"`+strings.Repeat("x", maxDeadData)+`"}`)
	id := f.awaitForeign(t, "/foreign", "gpu").TaskID
	for range 2 {
		if _, err := f.Redrive(t.Context(), "acme", id); err != nil {
			t.Fatal(err)
		}
		if rec := f.await(t, id); rec.Status != schemas.Blocked || rec.Run != 0 {
			t.Fatalf("redriven task = %s after %d runs, want blocked without one", rec.Status, rec.Run)
		}
	}
	if letters, err := f.DeadLetters(t.Context(), "acme", "", 5); err != nil || len(letters) != 1 {
		t.Errorf("DeadLetters = %+v, %v, want one", letters, err)
	}
}

// A dead letter is stored before the record ends. Redrive of a letter that a caller has just seen waits for the record.
func TestRedriveWaitsForTheRecord(t *testing.T) {
	f := newFleet(t)
	begun, end, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	f.work(t, WorkerOptions{Attempts: 1, Handler: func(context.Context, *Job) (*schemas.Result, error) {
		once.Do(func() { close(begun) })
		<-end
		return nil, Permanent(errors.New("no"))
	}})
	rec := f.submit(t, "1", `{"code":"x"}`)
	<-begun
	stream, err := f.js.Stream(t.Context(), streamTasks)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), "tasks.default.normal.acme")
	if err != nil {
		t.Fatal(err)
	}
	msg := &nats.Msg{Header: m.Header, Data: m.Data}
	l := lane{"default", "normal", "acme"}
	if err := f.deadLetter(t.Context(), l, rec.TaskID, rec.TaskID, "1", msg, &schemas.Error{Code: "x"}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { close(end) })
	if again, err := f.Redrive(t.Context(), "acme", rec.TaskID); err != nil || again.Status != schemas.Queued {
		t.Errorf("Redrive = %+v, %v, want it queued", again, err)
	}
}

// A record keeps a limited number of runs. Of the runs that are no attempts, the oldest are forgotten first.
func TestRunsOfARecordAreBounded(t *testing.T) {
	f := newFleet(t)
	id := f.submit(t, "1", `{"code":"x","retry":{"attempts":4}}`).TaskID
	_, _, err := f.change(t.Context(), "acme", id, func(r *storedRecord) (bool, error) {
		for r.Run = 0; r.Run < maxRuns; r.Run++ {
			outcome := outcomeDrained
			if r.Run < 2 {
				outcome = outcomeLost
			}
			r.Attempts = append(r.Attempts, schemas.Attempt{Run: r.Run + 1, Outcome: outcome})
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	rec := f.await(t, id)
	var want, got []int
	for run := range maxRuns + 1 {
		if run != 2 {
			want = append(want, run+1)
		}
	}
	for _, a := range rec.Attempts {
		got = append(got, a.Run)
	}
	if diff := cmp.Diff(want, got); rec.Status != schemas.Succeeded || diff != "" {
		t.Errorf("the %s record keeps these runs (-want +got):\n%s", rec.Status, diff)
	}
}

// Each reason why a task cannot be redriven has an error that names it, and nothing changes.
func TestNotRedrivable(t *testing.T) {
	f := newFleet(t)
	var healed atomic.Bool
	f.work(t, WorkerOptions{Handler: failing(&healed)})
	die := func(id string) string {
		return f.await(t, f.submit(t, id, `{"code":"x","retry":{"attempts":1}}`).TaskID).TaskID
	}
	late := die("late")
	f.expire(t, late)
	gone, unlettered := die("gone"), die("unlettered")
	for stream, subject := range map[string]string{
		streamRecords: recordSubject("acme", gone), streamDead: deadSubject("acme", unlettered),
	} {
		s, err := f.js.Stream(t.Context(), stream)
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	healed.Store(true)
	done := f.await(t, f.submit(t, "done", `{"code":"x"}`).TaskID).TaskID
	for id, want := range map[string]string{
		late: "expired at", gone: "the record of task " + gone + " is no longer kept",
		unlettered: "has no dead letter", done: "is succeeded: only dead-lettered tasks",
	} {
		_, err := f.Redrive(t.Context(), "acme", id)
		if e, ok := errors.AsType[*NotRedrivableError](err); !ok || !strings.Contains(e.Reason, want) || e.Hint == "" {
			t.Errorf("Redrive(%s) = %v, want %q and a hint", id, err, want)
		}
	}
	for _, id := range []string{TaskID("acme", "/test", "never"), "../x"} {
		if _, err := f.Redrive(t.Context(), "acme", id); !errors.Is(err, ErrUnknownTask) {
			t.Errorf("Redrive(%s) = %v, want %v", id, err, ErrUnknownTask)
		}
	}
	if _, err := f.Redrive(t.Context(), "other", late); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("Redrive of another tenant's task = %v, want %v", err, ErrUnknownTask)
	}
}

// Of several processes that redrive a task at once, one does, and the task runs once.
func TestRedriveAtOnce(t *testing.T) {
	f := newFleet(t)
	var healed atomic.Bool
	var runs atomic.Int32
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		runs.Add(1)
		return failing(&healed)(ctx, j)
	}})
	id := f.await(t, f.submit(t, "1", `{"code":"x","retry":{"attempts":1}}`).TaskID).TaskID
	healed.Store(true)
	var redriven atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := f.Redrive(t.Context(), "acme", id)
			if _, refused := errors.AsType[*NotRedrivableError](err); err == nil {
				redriven.Add(1)
			} else if !refused {
				t.Errorf("Redrive = %v, want nil or a *NotRedrivableError", err)
			}
		})
	}
	wg.Wait()
	if end := f.await(t, id); end.Status != schemas.Succeeded || redriven.Load() != 1 || runs.Load() != 2 {
		t.Errorf("record = %+v after %d redrives and %d runs, want 1 and 2", end, redriven.Load(), runs.Load())
	}
	f.awaitEmpty(t)
}

// If the process crashes before it publishes the message, the timer returns the task to its lane.
func TestRedriveTimer(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.MaxBacklog = 1 })
	var healed atomic.Bool
	stop := f.work(t, WorkerOptions{Handler: failing(&healed)})
	id := f.await(t, f.submit(t, "1", `{"code":"x","retry":{"attempts":1}}`).TaskID).TaskID
	f.awaitEmpty(t)
	stop()
	f.submit(t, "2", `{"code":"x"}`) // fills the lane
	rec, err := f.Redrive(t.Context(), "acme", id)
	if err != nil || rec.Status != schemas.Queued {
		t.Fatalf("Redrive into a full lane = %+v, %v, want it queued", rec, err)
	}
	healed.Store(true)
	f.work(t, WorkerOptions{Handler: failing(&healed)})
	f.await(t, TaskID("acme", "/test", "2"))
	f.awaitEmpty(t)
	r, err := f.loadLeader(t.Context(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.js.Stream(t.Context(), streamDelayed)
	if err != nil {
		t.Fatal(err)
	}
	timer, err := s.GetLastMsgForSubject(t.Context(), delayedSubject("acme", id, 1))
	if err != nil {
		t.Fatalf("the timer = %v, want nil", err)
	}
	if err := f.promoteNow(t.Context(), r); err != nil { // what the server does when the timer is due
		t.Fatalf("promote %+v = %v, want nil", timer, err)
	}
	if end := f.await(t, id); end.Status != schemas.Succeeded {
		t.Errorf("record = %+v, want succeeded", end)
	}
}

// RedriveAll redrives in pages, the oldest first, and reports those that it cannot redrive.
func TestRedriveAll(t *testing.T) {
	f := newFleet(t)
	var healed atomic.Bool
	f.work(t, WorkerOptions{Handler: failing(&healed)})
	f.publish(t, "tasks.default.normal.acme", nil, "garbage") // has no task id
	var ids []string
	for _, id := range []string{"a", "b", "c"} {
		ids = append(ids, f.await(t, f.submit(t, id, `{"code":"x","retry":{"attempts":1}}`).TaskID).TaskID)
	}
	s, err := f.js.Stream(t.Context(), streamRecords)
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSubject(recordSubject("acme", ids[1])))
	}
	if err != nil {
		t.Fatal(err)
	}
	healed.Store(true)
	first, err := f.RedriveAll(t.Context(), "acme", "", 0, 2)
	if err != nil || len(first.Tasks) != 2 || first.Tasks[0].TaskID != ids[0] || first.Next == 0 ||
		first.Tasks[1].TaskID != ids[1] || !strings.Contains(first.Tasks[1].Error, "no longer kept") {
		t.Fatalf("RedriveAll = %+v, %v, want the first two tasks and an error for the second", first, err)
	}
	second, err := f.RedriveAll(t.Context(), "acme", "", first.Next, 2)
	if err != nil || len(second.Tasks) != 1 || second.Tasks[0].TaskID != ids[2] || second.Next != 0 {
		t.Fatalf("RedriveAll from %d = %+v, %v, want the third task", first.Next, second, err)
	}
	for _, id := range []string{ids[0], ids[2]} {
		if end := f.await(t, id); end.Status != schemas.Succeeded {
			t.Errorf("record = %+v, want succeeded", end)
		}
	}
}

// A cause selects dead letters by their error code, in lists and for a redrive.
func TestRedriveByCause(t *testing.T) {
	f := newFleet(t)
	stop := f.work(t, WorkerOptions{Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
		err := errors.New("broken")
		if j.Task.Code == "full" {
			err = WithDetails(err, schemas.Error{Code: "disk_full", Message: "no space"})
		}
		return nil, err
	}})
	died := map[string]schemas.Record{}
	for _, code := range []string{"full", "other"} {
		rec := f.submit(t, code, `{"code":"`+code+`","retry":{"attempts":1}}`)
		if died[code] = f.await(t, rec.TaskID); died[code].Status != schemas.Dead {
			t.Fatalf("task %s = %s, want dead", code, died[code].Status)
		}
	}
	stop()
	full, err := f.DeadLetters(t.Context(), "acme", "disk_full", 0)
	if err != nil || len(full) != 1 || full[0].TaskID != died["full"].TaskID {
		t.Errorf("DeadLetters(disk_full) = %+v, %v, want the one task", full, err)
	}
	out, err := f.RedriveAll(t.Context(), "acme", "disk_full", 0, 10)
	if err != nil || len(out.Tasks) != 1 || out.Tasks[0].TaskID != died["full"].TaskID ||
		out.Tasks[0].Status != schemas.Queued {
		t.Errorf("RedriveAll(disk_full) = %+v, %v, want the one task queued", out, err)
	}
	left, err := f.DeadLetters(t.Context(), "acme", "", 0)
	if err != nil || len(left) != 1 || left[0].TaskID != died["other"].TaskID {
		t.Errorf("DeadLetters = %+v, %v, want the other task", left, err)
	}
}
