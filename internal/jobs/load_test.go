package jobs

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/codefleet/codefleet/schemas"
)

// TestLoad checks the backlog with tasks of three tenants, two pools and two priorities, of which two run.
func TestLoad(t *testing.T) {
	awaitPeriod(t, 24*time.Hour)
	f := newFleet(t)
	submit := func(tenant, id, pool, priority string) {
		t.Helper()
		ev := taskEvent(id, `{"code":"x","pool":"`+pool+`"}`, "priority", priority)
		if _, err := f.Submit(t.Context(), tenant, ev); err != nil {
			t.Fatal(err)
		}
	}
	submit("acme", "1", "default", "normal")
	submit("other", "1", "default", "normal")
	release := make(chan struct{})
	stop := f.work(t, WorkerOptions{Slots: 2, Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		<-release
		return succeed(ctx, j)
	}})
	defer stop()
	defer close(release)
	eventually(t, "two running tasks", func() error {
		all, err := f.Backlog(t.Context())
		if err == nil && (len(all) != 1 || all[0].Running != 2) {
			err = fmt.Errorf("backlog = %+v", all)
		}
		return err
	})
	before := time.Now()
	submit("acme", "2", "default", "normal")
	submit("acme", "3", "default", "high")
	submit("third", "1", "default", "normal")
	submit("third", "2", "gpu", "low")
	now := time.Now()
	for subject, n := range map[string]int{ // acme's tasks take 4 s, the others' 2 s
		usageSubject("acme", now, tallyTasks): 1, usageSubject("acme", now, tallyBox): 6000,
		usageSubject("acme", now.AddDate(0, 0, -1), tallyTasks): 1,
		usageSubject("acme", now.AddDate(0, 0, -1), tallyBox):   2000,
		usageSubject("acme", now.AddDate(0, 0, -2), tallyBox):   9e6, // too long ago
		usageSubject("other", now, tallyTasks):                  2, usageSubject("other", now, tallyBox): 0,
	} {
		if _, err := f.addTo(t.Context(), subject, n); err != nil {
			t.Fatal(err)
		}
	}
	found, err := f.readLoad(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, q := range found.queues {
		if age := q.OldestAgeS; age <= 0 || age > time.Since(before).Seconds() {
			t.Errorf("oldest task of %v is %v s old, want the age of a queued one", key, age)
		}
		q.OldestAgeS = 0
	}
	want := map[poolQueue]*schemas.Backlog{
		{"default", "normal"}: {Pool: "default", Queued: 2, Running: 2, SlotSeconds: 6},
		{"default", "high"}:   {Pool: "default", Queued: 1, SlotSeconds: 4},
		{"gpu", "low"}:        {Pool: "gpu", Queued: 1, SlotSeconds: 2},
	}
	if d := cmp.Diff(want, found.queues); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"acme": 2, "other": 0, "third": 2}, found.queued); d != "" {
		t.Errorf("queued by tenant (-want +got):\n%s", d)
	}
	for _, c := range []struct {
		pool           string
		within         time.Duration
		queued, demand int
	}{
		{"", 0, 4, 3},                      // 12 s of work in a minute, and two tasks run
		{"default", 5 * time.Second, 3, 4}, // 10 s
		{"default", time.Second, 3, 5},     // one slot per task at most
		{"gpu", time.Second, 1, 1},
		{"nothing", time.Second, 0, 0},
	} {
		d, err := f.Demand(t.Context(), c.pool, c.within)
		if err != nil || d.Queued != c.queued || d.Slots != c.demand || d.Pool != c.pool {
			t.Errorf("Demand(%q, %v) = %+v, %v, want %d queued and %d slots",
				c.pool, c.within, d, err, c.queued, c.demand)
		}
	}
}

// TestLoadWithoutHistory checks the estimate before any task has ended.
func TestLoadWithoutHistory(t *testing.T) {
	f := newFleet(t)
	if d, err := f.Demand(t.Context(), "", 0); err != nil || d != (schemas.Demand{WithinS: 60}) {
		t.Errorf("Demand of an empty queue = %+v, %v, want zeros", d, err)
	}
	f.submit(t, "1", `{"code":"x"}`)
	if d, err := f.Demand(t.Context(), "", 0); err != nil || d.SlotSeconds != unknownMean || d.Slots != 1 {
		t.Errorf("Demand = %+v, %v, want %v slot-seconds and 1 slot", d, err, unknownMean)
	}
}

// TestOldestBehindRunning checks that the search goes past more running tasks than one request returns.
func TestOldestBehindRunning(t *testing.T) {
	f := newFleet(t)
	const running = 2*oldestBatch + 3
	for i := range running {
		f.submit(t, "r"+strconv.Itoa(i), `{"code":"x"}`)
	}
	if _, err := f.Submit(t.Context(), "other", taskEvent("1", `{"code":"x"}`)); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	handler := func(ctx context.Context, j *Job) (*schemas.Result, error) {
		<-release
		return succeed(ctx, j)
	}
	stop := f.work(t, WorkerOptions{Slots: running + 1, Handler: handler})
	defer stop()
	defer close(release)
	eventually(t, "all running", func() error {
		all, err := f.Backlog(t.Context())
		if err == nil && all[0].Running != running+1 {
			err = fmt.Errorf("backlog = %+v", all)
		}
		return err
	})
	before := time.Now()
	if _, err := f.Submit(t.Context(), "third", taskEvent("1", `{"code":"x"}`)); err != nil {
		t.Fatal(err)
	}
	d, err := f.Demand(t.Context(), "", 0)
	if err != nil || d.Queued != 1 || d.OldestAgeS <= 0 || d.OldestAgeS > time.Since(before).Seconds() {
		t.Errorf("Demand = %+v, %v, want the age of the one queued task", d, err)
	}
}

func TestLargest(t *testing.T) {
	counts := map[string]int{"a": 5, "b": 1, "c": 4, "d": 1, "e": 0}
	if d := cmp.Diff(map[string]int{"a": 5, "c": 4, OtherTenants: 2}, largest(counts, 2)); d != "" {
		t.Errorf("largest (-want +got):\n%s", d)
	}
}

func TestNamedTenants(t *testing.T) {
	var n namedTenants
	name := func(tenant string) string {
		set := metric.NewRecordConfig([]metric.RecordOption{n.attr(tenant)}).Attributes()
		value, _ := set.Value("tenant")
		return value.AsString()
	}
	for i := range maxNamedTenants {
		if got := name(strconv.Itoa(i)); got != strconv.Itoa(i) {
			t.Errorf("tenant %d is named %s, want its name", i, got)
		}
	}
	if got := name("late"); got != OtherTenants {
		t.Errorf("one more tenant is named %s, want %s", got, OtherTenants)
	}
	if got := name("0"); got != "0" {
		t.Errorf("a known tenant is named %s, want 0", got)
	}
}

// TestObserve scrapes the metrics of a fleet, and again after the queue has gone.
func TestObserve(t *testing.T) {
	f := newFleet(t)
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	opts := f.opts
	opts.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)).Meter("jobs")
	c, err := Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	unregister, err := c.observe(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unregister()
	f.submit(t, "1", `{"code":"x"}`)
	if _, err := f.OpenHeadBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	scrape := func() string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("scrape = %d %s, want 200", w.Code, w.Body)
		}
		return w.Body.String()
	}
	text := scrape()
	for _, want := range []string{
		`codefleet_backlog_tasks{pool="default",priority="normal",state="queued"} 1`,
		`codefleet_backlog_tasks{pool="default",priority="normal",state="running"} 0`,
		`codefleet_backlog_slot_time_seconds{pool="default",priority="normal"} 1`,
		`codefleet_backlog_oldest_seconds{pool="default",priority="normal"} 0.`,
		`codefleet_backlog_tenant{tenant="acme"} 1`,
		`codefleet_fleet_workers{state="running"} 0`,
		`codefleet_fleet_slots{state="free"} 0`,
		`codefleet_queue_messages{stream="TASKS"} 1`,
		`codefleet_queue_messages{stream="DELIVERIES"} 0`,
		`codefleet_queue_size{stream="TASKS"} `,
		`codefleet_queue_size{stream="KV_TOKENS"} `,
		`codefleet_queue_size{stream="KV_WORKFLOWS"} `,
		`codefleet_queue_size{stream="KV_HEADS"} `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("metrics lack %q:\n%s", want, text)
		}
	}
	rec := f.submit(t, "2", `{"code":"x"}`)
	if _, err := c.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
		t.Fatal(err)
	}
	const ended = `codefleet_tasks_ended_total{pool="default",status="cancelled"} 1`
	if text := scrape(); !strings.Contains(text, "\n"+ended) {
		t.Errorf("after a task was cancelled in the queue, metrics lack %q:\n%s", ended, text)
	}
	f.srv.Close()
	if text := scrape(); strings.Contains(text, "codefleet_backlog") {
		t.Errorf("without the queue, the metrics have a backlog:\n%s", text)
	}
}
