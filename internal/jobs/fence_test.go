package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/schemas"
)

// workspace stands for a workspace whose HEAD lists the tasks that have committed and those that are fenced.
type workspace struct {
	mu        sync.Mutex
	committed map[string]bool
	fenced    map[string]bool
	failures  int // how many calls of fence fail
}

func (w *workspace) commit(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fenced[id] {
		return errors.New("fenced")
	}
	w.committed[id] = true
	return nil
}

// inDoubt is the Handler of a run that commits, but does not learn that it has.
func (w *workspace) inDoubt(_ context.Context, j *Job) (*schemas.Result, error) {
	return nil, errors.Join(w.commit(j.Record.TaskID), errors.New("the store did not respond"))
}

func (w *workspace) fence(_ context.Context, j *Job) (*schemas.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := j.Record.TaskID
	if w.failures > 0 {
		w.failures--
		return nil, errors.New("store unreachable")
	}
	if w.committed[id] {
		return &schemas.Result{Status: schemas.Succeeded, Workspace: schemas.WorkspaceChange{Generation: 7}}, nil
	}
	w.fenced[id] = true
	return nil, nil
}

// claimAndDisappear claims the task, as a worker would that then disappears.
func (f *fleet) claimAndDisappear(t *testing.T) (r *run) {
	t.Helper()
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	eventually(t, "claim", func() error {
		m, err := w.lanes.fetch(t.Context(), t.Context(), lane{"default", "normal", "acme"})
		if err != nil || m == nil {
			return fmt.Errorf("fetch = %v, %v, want a message", m, err) //nolint:errorlint // err may be nil
		}
		if r, err = w.claim(t.Context(), m, nil); err != nil || r == nil {
			t.Fatalf("claim = %v, %v, want a run", r, err)
		}
		return nil
	})
	w.lanes.close()
	return r
}

// If the lost run of a task has committed, the task has succeeded, even if it was cancelled, expired or exhausted. If
// not, the lost run can no longer commit after the task has ended.
func TestCommittedIsSucceeded(t *testing.T) {
	for name, test := range map[string]struct {
		data    string
		expires bool
		after   func(t *testing.T, f *fleet, id string) // called after the claim
		want    schemas.Status                          // status without a commit
	}{
		"exhausted": {data: `{"code":"x","retry":{"attempts":1}}`, want: schemas.Dead},
		"cancelled": {
			data: `{"code":"x"}`, want: schemas.Cancelled,
			after: func(t *testing.T, f *fleet, id string) {
				t.Helper()
				if rec, err := f.Cancel(t.Context(), "acme", id); err != nil || rec.Status != schemas.Running {
					t.Errorf("Cancel() = %+v, %v, want it running", rec, err)
				}
			},
		},
		"expired": {data: `{"code":"x"}`, want: schemas.Expired, expires: true},
	} {
		for _, committed := range []bool{false, true} {
			for _, failures := range []int{0, 2} {
				t.Run(fmt.Sprintf("%s, committed %t, %d failures", name, committed, failures), func(t *testing.T) {
					t.Parallel()
					f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
					rec := f.submit(t, "1", test.data)
					ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}, failures: failures}
					f.claimAndDisappear(t)
					if committed {
						if err := ws.commit(rec.TaskID); err != nil {
							t.Fatal(err)
						}
					}
					if test.after != nil {
						test.after(t, f, rec.TaskID)
					}
					if test.expires {
						f.expire(t, rec.TaskID)
					}
					again := func(context.Context, *Job) (*schemas.Result, error) {
						t.Error("the task ran again")
						return nil, errors.New("ran again")
					}
					f.work(t, WorkerOptions{Hooks: Hooks{Fence: ws.fence}, Handler: again})
					want := test.want
					if committed {
						want = schemas.Succeeded
					}
					end := f.await(t, rec.TaskID)
					if end.Status != want || committed && end.Result.Workspace.Generation != 7 {
						t.Errorf("record = %+v, want %s", end, want)
					}
					dead, err := f.DeadLetters(t.Context(), "acme", "", 1)
					if err != nil || (len(dead) > 0) != (want == schemas.Dead) {
						t.Errorf("DeadLetters = %+v, %v, want one only if the task is dead", dead, err)
					}
					if err := ws.commit(rec.TaskID); !committed && err == nil {
						t.Error("the lost run could commit after the end of its task")
					}
				})
			}
		}
	}
}

// If a run fails and its commit is in doubt, the worker looks for the commit before it completes the task.
func TestResultOfAnEarlierCommit(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
	ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}}
	rec := f.submit(t, "1", `{"code":"x","retry":{"attempts":1}}`)
	f.work(t, WorkerOptions{Hooks: Hooks{Fence: ws.fence}, Handler: ws.inDoubt})
	if end := f.await(t, rec.TaskID); end.Status != schemas.Succeeded {
		t.Errorf("record = %+v, want succeeded", end)
	}
}

// A task that waits for its next run may have committed, so a worker decides on a cancellation. It does so at once.
func TestCancelBetweenRuns(t *testing.T) {
	f := newFleet(t)
	ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}}
	rec := f.submit(t, "1", `{"code":"x","retry":{"attempts":3,"backoff_s":600}}`)
	f.work(t, WorkerOptions{Hooks: Hooks{Fence: ws.fence}, Handler: ws.inDoubt})
	eventually(t, "retry_wait", func() error {
		waiting, err := f.Record(t.Context(), "acme", rec.TaskID)
		if err == nil && waiting.Status != schemas.RetryWait {
			err = fmt.Errorf("status = %s, want retry_wait", waiting.Status)
		}
		return err
	})
	began, endLag := time.Now(), faulttest.MeasureLag()
	requested, err := f.Cancel(t.Context(), "acme", rec.TaskID)
	if err != nil || requested.Status.Terminal() || !requested.CancelRequested {
		t.Errorf("Cancel() = %+v, %v, want a request", requested, err)
	}
	end := f.await(t, rec.TaskID)
	if took := time.Since(began) - endLag(); end.Status != schemas.Succeeded || took > 5*time.Second {
		t.Errorf("record = %+v after %s, want succeeded at once", end, took)
	}
}

// A worker stores the dead letter before the record. If another process completes the task in between, or after it, no
// dead letter is left.
func TestDeadLetterOfACompletedTask(t *testing.T) {
	dead := func() *schemas.Result { return resultWith(schemas.Dead, errorExpired()) }
	for name, test := range map[string]func(t *testing.T, f *fleet, first, second *run){
		"completed before the letter": func(t *testing.T, _ *fleet, first, second *run) {
			t.Helper()
			if err := second.complete(t.Context(), resultWith(schemas.Succeeded, nil), false, func() {}); err != nil {
				t.Fatal(err)
			}
			if err := first.complete(t.Context(), dead(), true, func() {}); !errors.Is(err, ErrLeaseLost) {
				t.Errorf("late complete = %v, want %v", err, ErrLeaseLost)
			}
		},
		"completed after the letter": func(t *testing.T, f *fleet, first, second *run) {
			t.Helper()
			if err := first.complete(t.Context(), dead(), true, func() {}); !errors.Is(err, ErrLeaseLost) {
				t.Errorf("late complete = %v, want %v", err, ErrLeaseLost)
			}
			if letters, err := f.DeadLetters(t.Context(), "acme", "", 1); err != nil || len(letters) != 1 {
				t.Errorf("DeadLetters = %+v, %v, want the letter until the task is completed", letters, err)
			}
			if err := second.complete(t.Context(), resultWith(schemas.Succeeded, nil), false, func() {}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
			f.submit(t, "1", `{"code":"x"}`)
			test(t, f, f.claimAndDisappear(t), f.claimAndDisappear(t))
			if letters, err := f.DeadLetters(t.Context(), "acme", "", 1); err != nil || len(letters) > 0 {
				t.Errorf("DeadLetters = %+v, %v, want none", letters, err)
			}
		})
	}
}

// A timer may be due before the worker that stored it has written the record. Its message is kept until then, because
// no other message will carry the task.
func TestTimerBeforeRecord(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 10 * time.Second })
	rec := f.submit(t, "1", `{"code":"x"}`)
	first := f.claimAndDisappear(t)
	header := keptHeaders(first.m.msg.Header)
	header.Set(runHeader, "1")
	if err := f.publishDue(t.Context(), first.lane, rec.TaskID, header, first.m.msg.Data); err != nil {
		t.Fatal(err)
	}
	other := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	early := f.fetch(t, other.lanes)
	other.process(t.Context(), t.Context(), early, func(lane, time.Duration) {})
	other.lanes.close()
	err := first.delayUntil(t.Context(), time.Now().Add(time.Hour), toRetryWait(outcomeError, "no box"))
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	if end := f.await(t, rec.TaskID); end.Status != schemas.Succeeded || end.Run != 2 {
		t.Errorf("record = %+v, want succeeded in run 2", end)
	}
	f.awaitEmpty(t)
}

// TestDeadLetterOfNoName checks that a wildcard is not taken for a name: it would select another task's dead letter.
func TestDeadLetterOfNoName(t *testing.T) {
	f := newFleet(t)
	const task = "hyfxz3ece6wy7vvgtmu2wmauvi"
	if _, err := f.js.Publish(t.Context(), deadSubject("acme", task), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for tenant, id := range map[string]string{"acme": "*", "*": task, "acme.x": ">"} {
		if d, err := f.DeadLetter(t.Context(), tenant, id); !errors.Is(err, ErrUnknownTask) {
			t.Errorf("DeadLetter(%s, %s) = %+v, %v; want ErrUnknownTask", tenant, id, d, err)
		}
	}
}
