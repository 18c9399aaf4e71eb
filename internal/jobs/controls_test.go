package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// A paused tenant, pool or fleet starts no task, also after a restart of the worker. Running tasks end, other tenants'
// tasks run, and a resume starts the held tasks.
func TestPause(t *testing.T) {
	for _, target := range []string{"fleet", "pool/default", "tenant/acme"} {
		t.Run(strings.ReplaceAll(target, "/", " "), func(t *testing.T) {
			f := newFleet(t)
			started, release := make(chan string, 10), make(chan struct{})
			opts := WorkerOptions{Slots: 2, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
				started <- j.Task.Code
				if j.Task.Code == "long" {
					<-release
				}
				return succeed(ctx, j)
			}}
			stop := f.work(t, opts)
			long := f.submit(t, "long", `{"code":"long"}`)
			if got := <-started; got != "long" {
				t.Fatalf("first task = %s, want long", got)
			}
			if _, err := f.Pause(t.Context(), schemas.Pause{Target: target, By: "root", Reason: "a test"}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "pause read by the worker", func() error {
				if _, ok := f.controls.Load().pauseOf(lane{"default", "normal", "acme"}); !ok {
					return errors.New("not yet")
				}
				return nil
			})
			held := f.submit(t, "held", `{"code":"held"}`)
			other, err := f.Submit(t.Context(), "other", taskEvent("x", `{"code":"other"}`))
			if err != nil {
				t.Fatal(err)
			}
			if target == "tenant/acme" {
				if got := <-started; got != "other" {
					t.Errorf("started while acme is paused: %s, want other", got)
				}
			}
			close(release)
			if rec := f.await(t, long.TaskID); rec.Status != schemas.Succeeded {
				t.Errorf("the task that ran at the pause = %s, want succeeded", rec.Status)
			}
			why, err := f.Why(t.Context(), "acme", held.TaskID)
			want := schemas.Why{
				TaskID: held.TaskID, Status: schemas.Queued, Rule: schemas.WhyPaused, Ahead: new(0),
				Message: "an operator has paused " + target + ": a test",
			}
			if diff := cmp.Diff(want, why); err != nil || diff != "" {
				t.Errorf("Why = %v (-want +got):\n%s", err, diff)
			}
			stop()
			f.work(t, opts) // a restarted worker reads the pause before its first task
			f.work(t, WorkerOptions{Name: "sentinel", Pools: []string{"free"}, Handler: opts.Handler})
			if target == "pool/default" { // the sentinel's task starts, the held ones do not
				if _, err := f.Submit(t.Context(), "acme", taskEvent("s", `{"code":"free","pool":"free"}`)); err != nil {
					t.Fatal(err)
				}
				if got := <-started; got != "free" {
					t.Errorf("started while the pool is paused: %s, want free", got)
				}
			}
			if was, err := f.Resume(t.Context(), target); !was || err != nil {
				t.Fatalf("Resume = %v, %v, want true, nil", was, err)
			}
			if rec := f.await(t, held.TaskID); rec.Status != schemas.Succeeded || rec.Run != 1 {
				t.Errorf("the held task = %s run %d, want succeeded run 1", rec.Status, rec.Run)
			}
			ctx, cancel := context.WithTimeout(t.Context(), hangTime)
			defer cancel()
			if rec, err := f.Wait(ctx, "other", other.TaskID); err != nil || rec.Status != schemas.Succeeded {
				t.Errorf("other tenant's task = %s, %v, want succeeded", rec.Status, err)
			}
			if was, err := f.Resume(t.Context(), target); was || err != nil {
				t.Errorf("second Resume = %v, %v, want false, nil", was, err)
			}
			if all, err := f.Pauses(t.Context()); len(all) != 0 || err != nil {
				t.Errorf("Pauses = %v, %v, want none", all, err)
			}
		})
	}
}

// A pause of nonsense changes nothing.
func TestPauseIsChecked(t *testing.T) {
	f := newFleet(t, func(o *Options) {
		o.Policy = func(tenant string) (TenantPolicy, bool) { return TenantPolicy{}, tenant == "acme" }
	})
	for _, c := range []struct {
		pause schemas.Pause
		want  string
	}{
		{schemas.Pause{Target: ""}, errcode.BadName},
		{schemas.Pause{Target: "tenant/"}, errcode.BadName},
		{schemas.Pause{Target: "tenant/a.b"}, errcode.BadName},
		{schemas.Pause{Target: "pool/>"}, errcode.BadName},
		{schemas.Pause{Target: "worker/x"}, errcode.BadName},
		{schemas.Pause{Target: "tenant/" + strings.Repeat("a", 64)}, errcode.BadName},
		{schemas.Pause{Target: "tenant/unknown"}, errcode.UnknownTenant},
		{schemas.Pause{Target: "fleet", Reason: "\x1b[2J"}, errcode.BadData},
		{schemas.Pause{Target: "fleet", Reason: strings.Repeat("x", schemas.MaxReason+1)}, errcode.BadData},
	} {
		_, err := f.Pause(t.Context(), c.pause)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != c.want {
			t.Errorf("Pause(%.30q, %.10q) = %v, want %s", c.pause.Target, c.pause.Reason, err, c.want)
		}
	}
	if all, err := f.Pauses(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("Pauses = %v, %v, want none", all, err)
	}
	for _, key := range []string{"future.key", "pause.worker.x"} { // of a later version
		if err := f.putControl(t.Context(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.readControls(t.Context(), ">"); err != nil {
		t.Errorf("readControls with unknown keys = %v, want nil", err)
	}
}

// Why names the rule that holds a task, and its position.
func TestWhy(t *testing.T) {
	f := newFleet(t, func(o *Options) {
		o.Policy = func(string) (TenantPolicy, bool) { return TenantPolicy{MaxRunning: 1}, true }
	})
	why := func(name, id, rule, message string, ahead *int) schemas.Why {
		t.Helper()
		got, err := f.Why(t.Context(), "acme", id)
		if err != nil || got.Rule != rule || !strings.Contains(got.Message, message) ||
			cmp.Diff(ahead, got.Ahead) != "" {
			t.Errorf("Why of %s = %+v, %v, want rule %s, %q", name, got, err, rule, message)
		}
		return got
	}
	first := f.submit(t, "first", `{"code":"first"}`)
	why("first", first.TaskID, schemas.WhyNoWorker, "no worker is running", new(0))
	moved := f.submit(t, "moved", `{"code":"x","pool":"tpu"}`)
	for _, status := range []schemas.Status{schemas.Queued, schemas.RetryWait} {
		// As after a delay, or after Redrive: its message is in TASKS, and the record does not name it.
		_, _, err := f.change(t.Context(), "acme", moved.TaskID, func(r *storedRecord) (bool, error) {
			r.Status, r.QueueSeq = status, 0
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		why("moved, "+string(status), moved.TaskID, schemas.WhyNoWorker, "no worker is running", nil)
	}
	started, release := make(chan string, 1), make(chan struct{})
	fail := true
	handler := func(ctx context.Context, j *Job) (*schemas.Result, error) {
		started <- j.Task.Code
		if j.Task.Code == "key" && fail {
			fail = false
			return nil, WithDetails(errors.New("decrypt"), schemas.Error{Code: errcode.NoKey, Message: "no key"})
		}
		<-release
		return succeed(ctx, j)
	}
	stop := f.work(t, WorkerOptions{Name: "w", Slots: 2, Handler: handler})
	<-started
	why("first", first.TaskID, schemas.WhyRunning, "run 1 of the task has begun on w", nil)
	var last schemas.Record
	for i := range 3 {
		last = f.submit(t, strconv.Itoa(i), `{"code":"next"}`)
	}
	why("last", last.TaskID, schemas.WhyCap, "tenant acme runs 1 task", new(2))
	lone := f.submit(t, "lone", `{"code":"x","pool":"gpu"}`)
	why("lone", lone.TaskID, schemas.WhyNoWorker, "serves task pool gpu for tenant acme", new(0))
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	later := f.submit(t, "later", fmt.Sprintf(`{"code":"x","not_before":%q}`, at.Format(time.RFC3339)))
	if got := why("later", later.TaskID, schemas.WhyAt, "later start", nil); !got.Until.Equal(at) {
		t.Errorf("Until of later = %v, want %v", got.Until, at)
	}
	close(release)
	for range 3 {
		<-started
	}
	if rec := f.await(t, last.TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("last = %s, want succeeded", rec.Status)
	}
	why("last", last.TaskID, schemas.WhyEnded, "the task has ended: succeeded", nil)
	key := f.submit(t, "key", `{"code":"key","retry":{"backoff_s":3000}}`)
	<-started
	eventually(t, "retry of key", func() error {
		if rec, err := f.Record(t.Context(), "acme", key.TaskID); err != nil || rec.Status != schemas.RetryWait {
			return fmt.Errorf("%s, %w", rec.Status, err)
		}
		return nil
	})
	got := why("key", key.TaskID, schemas.WhyNoKey, "run 1 ended (error)", nil)
	if time.Until(got.Until) < 1000*time.Second {
		t.Errorf("Until of key = %v, want in at least 1500 s", got.Until)
	}
	if _, err := f.Why(t.Context(), "other", key.TaskID); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("Why for another tenant = %v, want ErrUnknownTask", err)
	}
	stop()
}
