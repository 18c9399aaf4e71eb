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

	"github.com/codefleet/codefleet/schemas"
)

// Usage counts what tasks of each tenant used, including runs that were repeated, once the worker has stopped.
func TestUsage(t *testing.T) {
	awaitPeriod(t, 24*time.Hour)
	f := newFleet(t)
	large := strings.Repeat("x", 300<<10)
	stop := f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		time.Sleep(30 * time.Millisecond) //nolint:forbidigo // the time that is measured
		if err := j.CountTokens(ctx, 7); err != nil {
			return nil, err
		}
		if j.Task.Code == "twice" && j.Record.Run == 1 {
			return nil, errors.New("once")
		}
		if j.Task.Code == "large" {
			return &schemas.Result{Status: schemas.Succeeded, Output: large}, nil
		}
		return &schemas.Result{
			Status: schemas.Succeeded, Output: "12345", Artifacts: []schemas.Artifact{{Path: "a", Bytes: 10}},
			Usage:  &schemas.Usage{PromptTokens: 3, CompletionTokens: 4}, // a run counts its tokens itself
			Egress: []schemas.EgressAttempt{{Host: "example.org", Bytes: 100}},
		}, nil
	}})
	const data = `{"code":"x"}`
	f.await(t, f.submit(t, "1", data).TaskID)
	f.await(t, f.submit(t, "2", `{"code":"twice","retry":{"backoff_s":0.01}}`).TaskID)
	rec, err := f.Submit(t.Context(), "other", taskEvent("1", `{"code":"large"}`))
	if err == nil {
		_, err = f.Wait(t.Context(), "other", rec.TaskID)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop()
	now := time.Now()
	all, err := f.Usage(t.Context(), "", now, now)
	if err != nil || len(all) != 2 || all[0].Tenant != "acme" || all[1].Tenant != "other" {
		t.Fatalf("Usage = %+v, %v, want acme and other", all, err)
	}
	if s := all[0].BoxSeconds; s < 0.09 || s > 10 {
		t.Errorf("acme used %.3f s in three runs of 30 ms, want at least 0.09", s)
	}
	if u := all[0]; u.WaitP50S <= 0 || u.WaitP99S < u.WaitP50S || u.WaitP99S > 60 {
		t.Errorf("waits of acme: p50 %v s, p99 %v s, want short ones", u.WaitP50S, u.WaitP99S)
	}
	all[0].BoxSeconds, all[0].WaitP50S, all[0].WaitP99S = 0, 0, 0
	want := schemas.TenantUsage{
		Tenant: "acme", Day: now.UTC().Format(time.DateOnly), Tasks: 2, Tokens: 21,
		BytesIn: len(data) + len(`{"code":"twice","retry":{"backoff_s":0.01}}`), BytesOut: 30, NetworkBytes: 200,
	}
	if all[0] != want {
		t.Errorf("usage of acme = %+v, want %+v", all[0], want)
	}
	if one, err := f.Usage(t.Context(), "other", now, now); err != nil || len(one) != 1 || one[0].Tasks != 1 ||
		one[0].BytesOut != len(large) {
		t.Errorf("Usage(other) = %+v, %v, want one task with %d bytes", one, err, len(large))
	}
	before := now.AddDate(0, 0, -1)
	if none, err := f.Usage(t.Context(), "", before, before); err != nil || len(none) != 0 {
		t.Errorf("Usage of yesterday = %+v, %v, want none", none, err)
	}
}

// The estimate of a queued task follows from the tenant's usage today, its share of the slots and its position.
func TestEstimate(t *testing.T) {
	awaitPeriod(t, 24*time.Hour)
	f := newFleet(t)
	var used tally
	today := tallyKey{"acme", time.Now().Unix() / secondsPerDay}
	used.add(today, &tallyCounts{countTasks: 10, countBox: 60_000}) // 6 s each
	if err := used.flush(t.Context(), f.Client); err != nil {
		t.Fatal(err)
	}
	started, release := make(chan struct{}, 10), make(chan struct{})
	f.work(t, WorkerOptions{Slots: 4, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		started <- struct{}{}
		<-release
		return succeed(ctx, j)
	}})
	var last schemas.Record
	for i := range 10 {
		last = f.submit(t, strconv.Itoa(i), `{"code":"x"}`)
	}
	for range 4 {
		<-started
	}
	for tenants, want := range []float64{9, 18} { // six tasks of 6 s on four slots, then on half of them
		if tenants > 0 {
			if _, err := f.Submit(t.Context(), "other", taskEvent("1", `{"code":"x"}`)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "estimate", func() error { // the worker's presence is published every few seconds
			why, err := f.Why(t.Context(), "acme", last.TaskID)
			if err != nil || why.Rule != schemas.WhyTurn || *why.Ahead != 5 || why.EstimateS == nil ||
				*why.EstimateS != want {
				return fmt.Errorf("%+v, %w, want turn, 5 ahead, %g s", why, err, want)
			}
			return nil
		})
	}
	close(release)
	f.await(t, last.TaskID)
}

// Counts that could not be added to the counters of the queue are added later.
func TestTallyKeepsCounts(t *testing.T) {
	awaitPeriod(t, 24*time.Hour)
	f := newFleet(t)
	var counts tally
	counts.countRun("acme", time.Second, 5, &schemas.Result{Output: "123"})
	counts.countRun("other", time.Second, 5, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := counts.flush(gone, f.Client); !errors.Is(err, context.Canceled) {
		t.Fatalf("flush without a queue = %v, want context.Canceled", err)
	}
	counts.countRun("acme", time.Second, 5, &schemas.Result{Output: "123"})
	now := time.Now()
	for range 2 { // the second flush adds nothing
		if err := counts.flush(t.Context(), f.Client); err != nil {
			t.Fatal(err)
		}
		got, err := f.Usage(t.Context(), "", now, now)
		day := now.UTC().Format(time.DateOnly)
		want := []schemas.TenantUsage{
			{Tenant: "acme", Day: day, Tasks: 2, BoxSeconds: 2, BytesIn: 10, BytesOut: 6},
			{Tenant: "other", Day: day, BoxSeconds: 1},
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Usage = %v (-want +got):\n%s", err, diff)
		}
	}
}

// BenchmarkTally measures the count of a run.
func BenchmarkTally(b *testing.B) {
	var counts tally
	result := &schemas.Result{Output: "x", Usage: &schemas.Usage{PromptTokens: 1}}
	for b.Loop() {
		counts.countRun("acme", time.Millisecond, 100, result)
	}
}

// Waits are estimated from counts: a quantile is in the range of the wait that has this rank.
func TestWaitQuantile(t *testing.T) {
	awaitPeriod(t, 24*time.Hour)
	f := newFleet(t)
	var used tally
	for range 98 {
		used.countWait("acme", 15*time.Millisecond)
	}
	used.countWait("acme", 40*time.Second)
	used.countWait("acme", 30*24*time.Hour)
	if err := used.flush(t.Context(), f.Client); err != nil {
		t.Fatal(err)
	}
	all, err := f.Usage(t.Context(), "acme", time.Now(), time.Now())
	if err != nil || len(all) != 1 {
		t.Fatalf("Usage = %v, %v, want one day", all, err)
	}
	if u := all[0]; u.WaitP50S < 0.01 || u.WaitP50S > 0.02 || u.WaitP99S < 20 || u.WaitP99S > 60 {
		t.Errorf("p50 %v s, want 0.01 to 0.02; p99 %v s, want 20 to 60", u.WaitP50S, u.WaitP99S)
	}
	if got := waitQuantile(&[len(waitBounds)]int{}, 0.5); got != 0 {
		t.Errorf("the quantile of no waits is %v, want 0", got)
	}
}
