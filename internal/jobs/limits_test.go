package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

func (f *fleet) limit(t testing.TB, l schemas.TenantLimits) {
	t.Helper()
	if _, err := f.SetLimits(t.Context(), "acme", l); err != nil {
		t.Fatal(err)
	}
}

// Limits that are set at run time replace those of the settings, are known to other processes, and are checked.
func TestLimits(t *testing.T) {
	f := newFleet(t, func(o *Options) {
		o.Policy = func(tenant string) (TenantPolicy, bool) {
			limits := schemas.TenantLimits{Weight: new(2), TaskRate: "5/m"}
			return TenantPolicy{MaxRunning: 7, Limits: limits}, tenant == "acme"
		}
	})
	f.limit(t, schemas.TenantLimits{Backlog: new(9), TaskRate: "1/s"})
	got, err := connect(t, f.opts).Limits(t.Context(), "acme")
	want := schemas.TenantLimitsInfo{
		Tenant: "acme", Set: schemas.TenantLimits{Backlog: new(9), TaskRate: "1/s"},
		Limits: schemas.TenantLimits{Weight: new(2), MaxRunning: new(7), Backlog: new(9), TaskRate: "1/s"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Limits = %v (-want +got):\n%s", err, diff)
	}
	for path, bad := range map[string]schemas.TenantLimits{
		"/weight":      {Weight: new(0)},
		"/max_running": {MaxRunning: new(-1)},
		"/backlog":     {Backlog: new(0)},
		"/task_rate":   {TaskRate: "0/s"},
		"/token_rate":  {TokenRate: "5/d"},
		"/tool_rates":  {ToolRates: map[string]schemas.Rate{"crm": "1/s"}},
	} {
		_, err := f.SetLimits(t.Context(), "acme", bad)
		if r, ok := errors.AsType[*RefusedError](err); !ok || r.Code != errcode.BadData || r.Path != path {
			t.Errorf("SetLimits with a wrong %s = %v, want bad_data there", path, err)
		}
	}
	for _, tool := range []string{"*/*", "*/drop", "crm/dr*", "/drop", "crm/"} { // would limit nothing
		rates := schemas.TenantLimits{ToolRates: map[string]schemas.Rate{tool: "1/s"}}
		_, err := f.SetLimits(t.Context(), "acme", rates)
		if r, ok := errors.AsType[*RefusedError](err); !ok || r.Path != "/tool_rates" {
			t.Errorf("SetLimits with a rate for the tool %q = %v, want it refused", tool, err)
		}
	}
	if _, err := f.SetLimits(t.Context(), "other", schemas.TenantLimits{Weight: new(1)}); err == nil {
		t.Error("SetLimits of an unknown tenant = nil, want an error")
	}
	if all, err := f.AllLimits(t.Context()); err != nil || cmp.Diff([]schemas.TenantLimitsInfo{want}, all) != "" {
		t.Errorf("AllLimits = %+v, %v, want those of acme", all, err)
	}
	slashes := schemas.TenantLimits{ToolRates: map[string]schemas.Rate{"crm/a/b": "1/s"}}
	if _, err := f.SetLimits(t.Context(), "acme", slashes); err != nil {
		t.Errorf("SetLimits with a rate for the tool crm/a/b = %v, want nil", err)
	}
	f.limit(t, schemas.TenantLimits{})
	if all, err := f.AllLimits(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("AllLimits after a reset = %+v, %v, want none", all, err)
	}
}

// TestChangeLimitsAtOnce changes two limits at once, five times each: no change undoes one of the other limit.
func TestChangeLimitsAtOnce(t *testing.T) {
	f := newFleet(t)
	var changing sync.WaitGroup
	var last int
	for n := range 5 {
		last = n + 1
		for _, change := range []schemas.TenantLimits{{Weight: &last}, {Backlog: &last}} {
			changing.Go(func() {
				if _, err := f.ChangeLimits(t.Context(), "acme", change); err != nil {
					t.Error(err)
				}
			})
		}
		changing.Wait()
		got, err := f.Limits(t.Context(), "acme")
		want := schemas.TenantLimits{Weight: &last, Backlog: &last}
		if diff := cmp.Diff(want, got.Set); err != nil || diff != "" {
			t.Fatalf("Limits = %v (-want +got):\n%s", err, diff)
		}
	}
	for _, change := range []schemas.TenantLimits{{}, {TaskRate: "7/s"}} { // after a reset
		f.limit(t, schemas.TenantLimits{})
		got, err := f.ChangeLimits(t.Context(), "acme", change)
		if diff := cmp.Diff(change, got.Set); err != nil || diff != "" {
			t.Errorf("ChangeLimits after a reset = %v (-want +got):\n%s", err, diff)
		}
	}
	_, err := f.ChangeLimits(t.Context(), "acme", schemas.TenantLimits{Weight: new(0)})
	if r, ok := errors.AsType[*RefusedError](err); !ok || r.Path != "/weight" {
		t.Errorf("ChangeLimits to the weight 0 = %v, want it refused", err)
	}
}

// The backlog counts queued and running tasks. A task that was accepted before is still found.
func TestBacklogOfATenant(t *testing.T) {
	f := newFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go f.FollowControls(ctx, nil)
	f.limit(t, schemas.TenantLimits{Backlog: new(2)})
	eventually(t, "limit", func() error {
		if f.controls.Load().limitsOf(nil, "acme").Backlog == nil {
			return errors.New("not read")
		}
		return nil
	})
	f.submit(t, "1", `{"code":"x"}`)
	f.submit(t, "2", `{"code":"x","pool":"gpu"}`)
	if _, err := f.Submit(t.Context(), "acme", taskEvent("3", `{"code":"x"}`)); !errors.Is(err, ErrBacklogFull) {
		t.Errorf("third task = %v, want ErrBacklogFull", err)
	}
	f.submit(t, "2", `{"code":"x","pool":"gpu"}`)
	if _, err := f.Submit(t.Context(), "other", taskEvent("1", `{"code":"x"}`)); err != nil {
		t.Errorf("task of another tenant = %v, want nil", err)
	}
	// The message of a step that has ended stays until the next one is submitted.
	step := taskEvent("step", `{"code":"x"}`)
	step.SetSource(WorkflowSource + "run/0")
	if _, err := f.Submit(t.Context(), "acme", step); err != nil {
		t.Errorf("next step of a workflow = %v, want nil", err)
	}
}

// TestDelayedTasksAreBounded checks that tasks that wait for their time count against the limit of the tenant, and
// without one against that of a lane.
func TestDelayedTasksAreBounded(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.Storage.MaxBacklog = 2 })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go f.FollowControls(ctx, nil)
	f.work(t, WorkerOptions{Handler: succeed})
	const now, later = `{"code":"x"}`, `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`
	f.submit(t, "1", later)
	f.submit(t, "2", later)
	eventually(t, "delayed tasks", func() error {
		n, err := f.countFrom(t.Context(), streamDelayed, "delayed.acme.*", 1)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d tasks", n)
		}
		return err
	})
	submit := func(tenant, id, data string) error {
		_, err := f.Submit(t.Context(), tenant, taskEvent(id, data))
		return err
	}
	for _, data := range []string{later, `{"code":"x","retry":{"backoff_s":86400}}`, `{"description":"x"}`} {
		if err := submit("acme", "3", data); !errors.Is(err, ErrBacklogFull) {
			t.Errorf("third task %s = %v, want ErrBacklogFull", data, err)
		}
	}
	if err := errors.Join(submit("acme", "now", now), submit("other", "3", later)); err != nil {
		t.Errorf("a task for now, and one of another tenant = %v, want nil", err)
	}
	f.limit(t, schemas.TenantLimits{Backlog: new(2)})
	eventually(t, "limit", func() error {
		if f.controls.Load().limitsOf(nil, "acme").Backlog == nil {
			return errors.New("not read")
		}
		return nil
	})
	if err := submit("acme", "4", now); !errors.Is(err, ErrBacklogFull) {
		t.Errorf("task above the tenant's limit = %v, want ErrBacklogFull", err)
	}
}

// awaitPeriod waits for the next period if it begins within two minutes: a test's counters are those of one period.
func awaitPeriod(t *testing.T, period time.Duration) {
	t.Helper()
	if left := time.Until(time.Now().Truncate(period).Add(period)); left < 2*time.Minute {
		t.Logf("waiting %v for the next period", left)
		<-time.After(left)
	}
}

// A rate of tasks holds further tasks in the queue until the next period, in the whole fleet, and other tenants' tasks
// are not held.
func TestTaskRate(t *testing.T) {
	awaitPeriod(t, time.Hour)
	f := newFleet(t)
	f.limit(t, schemas.TenantLimits{TaskRate: "3/h"})
	var started atomic.Int32
	handler := func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if j.Record.Tenant == "acme" {
			started.Add(1)
		}
		return succeed(ctx, j)
	}
	var tasks []schemas.Record
	for i := range 8 {
		tasks = append(tasks, f.submit(t, strconv.Itoa(i), `{"code":"x"}`))
	}
	for i := range 2 {
		f.work(t, WorkerOptions{Name: fmt.Sprint("w", i), Slots: 4, Handler: handler})
	}
	eventually(t, "three starts", func() error {
		if n := started.Load(); n != 3 {
			return fmt.Errorf("%d tasks have started", n)
		}
		return nil
	})
	for i := range 3 { // meanwhile the workers could start acme's tasks
		rec, err := f.Submit(t.Context(), "other", taskEvent(strconv.Itoa(i), `{"code":"y"}`))
		if err != nil {
			t.Fatal(err)
		}
		if rec, err = f.Wait(t.Context(), "other", rec.TaskID); err != nil || rec.Status != schemas.Succeeded {
			t.Errorf("task of another tenant = %s, %v, want succeeded", rec.Status, err)
		}
	}
	if n := started.Load(); n != 3 {
		t.Errorf("%d tasks have started, want 3", n)
	}
	why, err := f.Why(t.Context(), "acme", tasks[7].TaskID)
	if err != nil || why.Rule != schemas.WhyRate || *why.Ahead != 4 ||
		!why.Until.Equal(time.Now().Truncate(time.Hour).Add(time.Hour)) {
		t.Errorf("Why = %+v, %v, want rate, 4 ahead, until the next hour", why, err)
	}
	f.limit(t, schemas.TenantLimits{TaskRate: "100/h"})
	for _, rec := range tasks {
		if rec = f.await(t, rec.TaskID); rec.Status != schemas.Succeeded {
			t.Errorf("task = %s, want succeeded", rec.Status)
		}
	}
}

// ratesFleet returns a fleet whose server has no accounts, and a subscription to the requests that read rates.
func ratesFleet(t *testing.T) (*fleet, *nats.Subscription) {
	t.Helper()
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	f := &fleet{Client: connect(t, Options{Server: Server{URL: s.ClientURL()}, AckWait: 10 * time.Second, Log: noLog})}
	provision(t, f.Client)
	reads, err := f.nc.SubscribeSync("$JS.API.STREAM.MSG.GET." + streamRates)
	if err != nil {
		t.Fatal(err)
	}
	return f, reads
}

// A worker that finds the rate used up starts the task once another worker has undone its count.
func TestTaskRateAfterUncount(t *testing.T) {
	awaitPeriod(t, time.Hour)
	f, reads := ratesFleet(t)
	f.limit(t, schemas.TenantLimits{TaskRate: "1/h"})
	counter, _, err := f.countRate(t.Context(), "acme", rateTasks, "1/h")
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	rec := f.submit(t, "1", `{"code":"x"}`)
	if _, err := reads.NextMsg(hangTime); err != nil {
		t.Fatalf("read of the rate: %v", err)
	}
	if err := f.uncount(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	if rec = f.await(t, rec.TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("task = %s, want succeeded", rec.Status)
	}
	if n := streamState(t, f, streamRates).LastSeq; n != 3 { // the test's two writes, and the start
		t.Errorf("the rate was written %d times, want 3: no worker counts a start while the rate is used up", n)
	}
}

// A task that is cancelled, or waits for its time, does not count against the rate until it starts.
func TestTaskRateCountsStarts(t *testing.T) {
	f := newFleet(t)
	f.limit(t, schemas.TenantLimits{TaskRate: "1/h"})
	f.work(t, WorkerOptions{Slots: 4, Handler: succeed})
	cancelled := f.submit(t, "cancelled", `{"code":"x","not_before":"2100-01-01T00:00:00Z"}`)
	if _, err := f.Cancel(t.Context(), "acme", cancelled.TaskID); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	rec := f.await(t, f.submit(t, "later", `{"code":"x","not_before":"`+at+`"}`).TaskID)
	if rec.Status != schemas.Succeeded || rec.Run != 1 {
		t.Errorf("task = %s after %d runs, want succeeded after one", rec.Status, rec.Run)
	}
}

// A cap that is raised at run time takes effect at once.
func TestMaxRunningAtRunTime(t *testing.T) {
	f := newFleet(t)
	f.limit(t, schemas.TenantLimits{MaxRunning: new(1)})
	started, release := make(chan string, 10), make(chan struct{})
	f.work(t, WorkerOptions{Slots: 4, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		started <- j.Task.Code
		<-release
		return succeed(ctx, j)
	}})
	var last schemas.Record
	for i := range 3 {
		last = f.submit(t, strconv.Itoa(i), `{"code":"x"}`)
	}
	<-started
	eventually(t, "cap", func() error {
		why, err := f.Why(t.Context(), "acme", last.TaskID)
		if err != nil || why.Rule != schemas.WhyCap {
			return fmt.Errorf("rule %s, %w", why.Rule, err)
		}
		return nil
	})
	if len(started) != 0 {
		t.Error("a second task has started, want one at a time")
	}
	f.limit(t, schemas.TenantLimits{MaxRunning: new(3)})
	<-started
	<-started
	close(release)
	f.await(t, last.TaskID)
}

// A rate of tokens delays tasks that need a model, and no others.
func TestTokenRate(t *testing.T) {
	awaitPeriod(t, time.Hour)
	f := newFleet(t)
	f.limit(t, schemas.TenantLimits{TokenRate: "100/h"})
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		r, err := succeed(ctx, j)
		if j.Task.Description != "" {
			err = errors.Join(err, j.CountTokens(ctx, 100))
		}
		return r, err
	}})
	f.await(t, f.submit(t, "first", `{"description":"x"}`).TaskID)
	second := f.submit(t, "second", `{"description":"x"}`)
	if rec := f.await(t, f.submit(t, "code", `{"code":"x"}`).TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("task with code = %s, want succeeded", rec.Status)
	}
	next := time.Now().Truncate(time.Hour).Add(time.Hour)
	eventually(t, "delay", func() error {
		why, err := f.Why(t.Context(), "acme", second.TaskID)
		if err != nil || why.Rule != schemas.WhyRate || !why.Until.Equal(next) {
			return fmt.Errorf("%+v, %w", why, err)
		}
		return nil
	})
	if rec, err := f.Record(t.Context(), "acme", second.TaskID); err != nil || rec.Run != 0 {
		t.Errorf("the delayed task has %d runs, %v, want none", rec.Run, err)
	}
}

// A rate of calls makes further calls wait for the next period. A call that is not made counts against no rate.
func TestToolRate(t *testing.T) {
	awaitPeriod(t, time.Hour)
	f := newFleet(t)
	f.limit(t, schemas.TenantLimits{ToolRates: map[string]schemas.Rate{
		"crm/*": "2/h", "crm/export": "1/h", "web/get": "1/s",
	}})
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		var texts []any
		await := func(ctx context.Context, names ...string) {
			texts = append(texts, j.AwaitToolRate(ctx, names))
		}
		expect := func(names ...string) {
			limited, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, errors.New("time is up"))
			defer cancel()
			await(limited, names...)
		}
		await(ctx, "crm/export")
		expect("crm/export")
		await(ctx, "crm/b")
		expect("crm/c")
		texts = append(texts, streamState(t, f, streamRates).LastSeq)
		begin := time.Now()
		await(ctx, "site/read", "web/get")
		await(ctx, "site/read", "web/get")
		texts = append(texts, time.Now().Truncate(time.Second).After(begin.Truncate(time.Second)))
		await(ctx, "web/put")
		return &schemas.Result{Status: schemas.Succeeded, Output: fmt.Sprint(texts...)}, nil
	}})
	rec := f.await(t, f.submit(t, "x", `{"code":"x"}`).TaskID)
	// The three counts of the calls that take place are the only ones.
	if want := "<nil> time is up <nil> time is up 3 <nil> <nil> true <nil>"; rec.Result.Output != want {
		t.Errorf("calls = %s, want %s", rec.Result.Output, want)
	}
}

// A call that waits for a rate takes place once another call that was counted has not taken place.
func TestToolRateAfterUncount(t *testing.T) {
	awaitPeriod(t, time.Hour)
	f, reads := ratesFleet(t)
	f.limit(t, schemas.TenantLimits{ToolRates: map[string]schemas.Rate{"crm/export": "1/h"}})
	what := rateTools + subjectEncoding.EncodeToString([]byte("crm/export"))
	counter, _, err := f.countRate(t.Context(), "acme", what, "1/h")
	if err != nil {
		t.Fatal(err)
	}
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		if err := j.AwaitToolRate(ctx, []string{"crm/export"}); err != nil {
			return nil, err
		}
		return succeed(ctx, j)
	}})
	id := f.submit(t, "x", `{"code":"x"}`).TaskID
	if _, err := reads.NextMsg(hangTime); err != nil {
		t.Fatalf("read of the rate: %v", err)
	}
	if err := f.uncount(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	if rec := f.await(t, id); rec.Status != schemas.Succeeded {
		t.Errorf("task = %s, want succeeded", rec.Status)
	}
}

// A start that did not take place is subtracted from its own period, even if the next one has begun.
func TestUncountInTheNextPeriod(t *testing.T) {
	f := newFleet(t)
	counter, until, err := f.countRate(t.Context(), "acme", rateTasks, "10/s")
	if err != nil || !until.IsZero() {
		t.Fatalf("countRate = %s, %v, want a start", until, err)
	}
	for time.Now().Truncate(time.Second).Equal(periodOf(t, counter)) { // until the next period
		<-time.After(10 * time.Millisecond)
	}
	if err := f.uncount(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]int{periodOf(t, counter): 0, time.Now().Truncate(time.Second): 0} {
		if n, err := f.counter(t.Context(), streamRates, rateSubject("acme", rateTasks, at)); err != nil || n != want {
			t.Errorf("starts in the period of %s = %d, %v, want %d", at, n, err, want)
		}
	}
}

// periodOf returns when the period of a counter began.
func periodOf(t *testing.T, counter string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(counter[strings.LastIndexByte(counter, '.')+1:], 36, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(n, 0)
}

// TestLimitWhileALaneBegins checks that a limit that is changed while a lane's consumer is created applies to the lane.
func TestLimitWhileALaneBegins(t *testing.T) {
	f := newFleet(t)
	w := NewWorker(f.Client, WorkerOptions{})
	limits := []int{5, 7}
	calls := 0
	w.lanes.maxRunning = func(string) int {
		calls++
		if calls == 1 {
			w.lanes.forgetAll() // as when another limit is set now
		}
		return limits[calls-1]
	}
	t.Cleanup(w.lanes.close)
	l := lane{"default", "normal", "acme"}
	for range 3 {
		if m, err := w.lanes.fetch(t.Context(), t.Context(), l); m != nil || err != nil {
			t.Fatalf("fetch = %v, %v, want no message", m, err)
		}
	}
	consumer, err := f.js.Consumer(t.Context(), streamTasks, l.consumer())
	if err != nil {
		t.Fatal(err)
	}
	if got := consumer.CachedInfo().Config.MaxAckPending; got != 7 || calls != 2 {
		t.Errorf("the lane's cap = %d after %d reads of the limit, want 7 after 2", got, calls)
	}
}
