package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// workspace stands for a workspace whose HEAD says which tasks have committed, and which never may.
type workspace struct {
	mu        sync.Mutex
	committed map[string]bool
	fenced    map[string]bool
	away      int // how many fences fail
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

func (w *workspace) fence(_ context.Context, j *Job) (*schemas.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := j.Record.TaskID
	if w.away > 0 {
		w.away--
		return nil, errors.New("store away")
	}
	if w.committed[id] {
		return &schemas.Result{Status: schemas.Succeeded, Workspace: schemas.WorkspaceChange{Generation: 7}}, nil
	}
	w.fenced[id] = true
	return nil, nil
}

// lose claims the task as a worker does that then disappears.
func (f *fleet) lose(t *testing.T) {
	t.Helper()
	w := NewWorker(f.Client, WorkerOptions{Handler: succeed})
	eventually(t, "claim", func() error {
		m, err := w.lanes.fetch(t.Context(), lane{"default", "normal", "acme"})
		if err != nil || m == nil {
			return fmt.Errorf("fetch = %v, %v", m, err) //nolint:errorlint // err may be nil
		}
		r, err := w.claim(t.Context(), m, nil)
		if err != nil || r == nil {
			t.Fatalf("claim = %v, %v", r, err)
		}
		return nil
	})
	if err := w.lanes.close(); err != nil {
		t.Error(err)
	}
}

// A task whose lost run has committed has succeeded, however it would have ended otherwise. One whose run has not
// committed ends as it does, and its run can no longer commit then.
func TestCommittedIsSucceeded(t *testing.T) {
	for name, test := range map[string]struct {
		data    string
		expires bool
		after   func(t *testing.T, f *fleet, id string) // the claim
		want    schemas.Status                          // without a commit
	}{
		"exhausted": {data: `{"code":"x","retry":{"attempts":1}}`, want: schemas.Dead},
		"cancelled": {
			data: `{"code":"x"}`, want: schemas.Cancelled,
			after: func(t *testing.T, f *fleet, id string) {
				t.Helper()
				if rec, err := f.Cancel(t.Context(), "acme", id); err != nil || rec.Status != schemas.Running {
					t.Errorf("Cancel() = %+v, %v", rec, err)
				}
			},
		},
		"expired": {data: `{"code":"x"}`, want: schemas.Expired, expires: true},
	} {
		for _, committed := range []bool{false, true} {
			for _, away := range []int{0, 2} {
				t.Run(fmt.Sprintf("%s, committed %t, store away %d", name, committed, away), func(t *testing.T) {
					t.Parallel()
					f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
					var attrs []string
					if test.expires {
						attrs = []string{"expirytime", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}
					}
					rec := f.submit(t, "1", test.data, attrs...)
					ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}, away: away}
					f.lose(t)
					if committed {
						if err := ws.commit(rec.TaskID); err != nil {
							t.Fatal(err)
						}
					}
					if test.after != nil {
						test.after(t, f, rec.TaskID)
					}
					if test.expires {
						<-time.After(time.Until(rec.ExpiresAt))
					}
					again := func(context.Context, *Job) (*schemas.Result, error) {
						t.Error("the task ran again")
						return nil, errors.New("ran again")
					}
					f.work(t, WorkerOptions{Fence: ws.fence, Handler: again})
					want := test.want
					if committed {
						want = schemas.Succeeded
					}
					end := f.await(t, rec.TaskID)
					if end.Status != want || committed && end.Result.Workspace.Generation != 7 {
						t.Errorf("record = %+v, want %s", end, want)
					}
					dead, err := f.DeadLetters(t.Context(), "acme", 1)
					if err != nil || (len(dead) > 0) != (want == schemas.Dead) {
						t.Errorf("dead letters = %+v, %v", dead, err)
					}
					if err := ws.commit(rec.TaskID); !committed && err == nil {
						t.Error("the lost run commits after the end of its task")
					}
				})
			}
		}
	}
}

// A run whose own commit is in doubt, or that follows a lost run, asks before it completes its task.
func TestResultOfAnEarlierCommit(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 600 * time.Millisecond })
	ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}}
	doubt := f.submit(t, "1", `{"code":"doubt","retry":{"attempts":1}}`)
	f.work(t, WorkerOptions{Fence: ws.fence, Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
		if err := ws.commit(j.Record.TaskID); err != nil {
			t.Error(err)
		}
		return nil, errors.New("the store did not respond")
	}})
	if end := f.await(t, doubt.TaskID); end.Status != schemas.Succeeded {
		t.Errorf("commit in doubt: %+v, want succeeded", end)
	}
}

// A task that ran before and waits for its next run may have committed: a cancellation is decided by a worker, at once.
func TestCancelBetweenRuns(t *testing.T) {
	f := newFleet(t)
	ws := &workspace{committed: map[string]bool{}, fenced: map[string]bool{}}
	rec := f.submit(t, "1", `{"code":"x","retry":{"attempts":3,"backoff_s":600}}`)
	f.work(t, WorkerOptions{Fence: ws.fence, Handler: func(_ context.Context, j *Job) (*schemas.Result, error) {
		if err := ws.commit(j.Record.TaskID); err != nil {
			t.Error(err)
		}
		return nil, errors.New("the store did not respond")
	}})
	eventually(t, "the task waits", func() error {
		now, err := f.Record(t.Context(), "acme", rec.TaskID)
		if err == nil && now.Status != schemas.RetryWait {
			err = fmt.Errorf("it is %s", now.Status)
		}
		return err
	})
	began := time.Now()
	now, err := f.Cancel(t.Context(), "acme", rec.TaskID)
	if err != nil || now.Status.Terminal() || !now.CancelRequested {
		t.Errorf("Cancel() = %+v, %v, want a request", now, err)
	}
	if end := f.await(t, rec.TaskID); end.Status != schemas.Succeeded || time.Since(began) > time.Minute {
		t.Errorf("record = %+v after %s, want succeeded at once", end, time.Since(began))
	}
}
