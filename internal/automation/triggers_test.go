package automation

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

func order(id, data string) event.Event {
	ev := event.New()
	ev.SetID(id)
	ev.SetSource("/shop")
	ev.SetType("order.created")
	if err := ev.SetData(event.ApplicationJSON, json.RawMessage(data)); err != nil {
		panic(err)
	}
	return ev
}

func onOrder(name, filter string) schemas.TriggerSpec {
	return schemas.TriggerSpec{Name: name, Type: "order.created", Filter: filter, Task: []byte(`{"code":"x"}`)}
}

// start runs a worker and n services until the test ends.
func (w *world) start(t *testing.T, n int, handler jobs.Handler) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for range n {
		s := newService(w.connect(t), loopback)
		running.Go(func() { s.Run(ctx) })
	}
	worker := jobs.NewWorker(w.queue, jobs.WorkerOptions{Name: "w", Slots: 4, Handler: handler, Log: quiet})
	running.Go(func() {
		if err := worker.Run(ctx, ctx); err != nil {
			t.Errorf("Run of the worker = %v, want nil", err)
		}
	})
	return ctx
}

// TestMatches checks what patterns and filters match.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		eventType, source, filter, want string
	}{
		{"order.created", "", "", ""},
		{"order.*", "/sh*", "", ""},
		{"*", "", "", ""},
		{"order", "", "", "the event has the type order.created"},
		{"order.created", "/other", "", "the event has the source /shop"},
		{"order.created", "", "data.total > 100", ""},
		{"order.created", "", "data.total > 300", "the filter is false"},
		{"order.created", "", "data.missing == 1", "the filter cannot be evaluated: no such key: missing"},
		{"order.created", "", "event.id == '1' && event.source.startsWith('/s')", ""},
		{"order.created", "", "event.region == 'eu'", ""},
		{"order.created", "", "data.items.exists(i, i == 'b')", ""},
	} {
		m, err := newMatcher(schemas.TriggerSpec{Type: c.eventType, Source: c.source, Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		ev := order("1", `{"total": 250, "items": ["a", "b"]}`)
		ev.SetExtension("region", "eu")
		if got, err := m.matches(t.Context(), &incoming{Event: ev}); err != nil || got.reason != c.want {
			t.Errorf("matches(%+v) = %q, %v, want %q", c, got.reason, err, c.want)
		}
	}
}

func TestInputs(t *testing.T) {
	for data, want := range map[string]string{
		"": "null", `{"a": 1}`: `{"a": 1}`, "hello": `"hello"`, "\xff\xfe": `"//4="`, "<a>": `"\u003ca\u003e"`,
	} {
		ev := order("1", "null")
		ev.DataEncoded = []byte(data)
		if got := string((&incoming{Event: ev}).inputs()); got != want {
			t.Errorf("inputs of %q = %s, want %s", data, got, want)
		}
	}
}

func TestRefusedTriggers(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for want, change := range map[string]func(*schemas.TriggerSpec){
		"bad_name name":             func(s *schemas.TriggerSpec) { s.Name = "a.b" },
		"bad_data /type":            func(s *schemas.TriggerSpec) { s.Type = "" },
		"bad_data /source":          func(s *schemas.TriggerSpec) { s.Source = "*x*" },
		"bad_data /filter":          func(s *schemas.TriggerSpec) { s.Filter = "data.total >" },
		"bad_data /task/inputs":     func(s *schemas.TriggerSpec) { s.Task = []byte(`{"code":"x","inputs":1}`) },
		"bad_data /task/expirytime": func(s *schemas.TriggerSpec) { s.Task = []byte(`{"code":"x","expirytime":""}`) },
		"bad_data /task":            func(s *schemas.TriggerSpec) { s.Task = []byte(`{}`) },
		"bad_data ":                 func(s *schemas.TriggerSpec) { s.Filter = strings.Repeat("x", 5000) },
	} {
		in := onOrder("t", "")
		change(&in)
		if _, err := w.AddTrigger(t.Context(), "acme", in); !strings.HasPrefix(code(err), want) {
			t.Errorf("AddTrigger = %q (%v), want %q", code(err), err, want)
		}
	}
	if _, err := w.AddTrigger(t.Context(), "acme", onOrder("t", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddTrigger(t.Context(), "acme", onOrder("t", "")); err != nil {
		t.Errorf("AddTrigger of the same trigger = %v, want nil", err)
	}
	if _, err := w.AddTrigger(t.Context(), "acme", onOrder("t", "true")); code(err) != "automation_exists name" {
		t.Errorf("AddTrigger of another trigger = %v, want automation_exists", err)
	}
}

// TestTypesWithoutEvents checks that triggers and webhooks for events that never occur are refused, and that their
// patterns for results are accepted.
func TestTypesWithoutEvents(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for eventType, want := range map[string]string{
		"codefleet.result.v1": "bad_data /type", "codefleet.task.v1": "bad_data /type",
		"codefleet.x*":     "bad_data /type",
		schemas.TypeResult: "<nil>", "codefleet.*": "<nil>", "*": "<nil>", "codefleets": "<nil>",
	} {
		in := onOrder("t"+strings.Trim(strings.ReplaceAll(eventType, ".", "-"), "*"), "")
		in.Type = eventType
		if _, err := w.AddTrigger(t.Context(), "acme", in); code(err) != want {
			t.Errorf("AddTrigger for %q = %v, want %s", eventType, err, want)
		}
		if _, err := w.AddWebhook(t.Context(), "acme", schemas.WebhookSpec{
			Name: in.Name, URL: "https://example.org", Type: eventType, NoHandshake: true,
		}); code(err) != want {
			t.Errorf("AddWebhook for %q = %v, want %s", eventType, err, want)
		}
	}
}

// TestTriggers sends events while two processes share them. Each event leads to one task, which has its data as inputs,
// even if the event is sent again. Events of other tenants match nothing.
func TestTriggers(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 2, func(_ context.Context, j *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded, Output: string(j.Task.Inputs)}, nil
	})
	if _, err := w.AddTrigger(ctx, "acme", onOrder("large", "data.total > 100")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range 20 {
			ev := order(strconv.Itoa(i), fmt.Sprintf(`{"total": %d}`, i*10))
			if err := w.queue.PublishEvent(ctx, "acme", ev); err != nil {
				t.Fatal(err)
			}
			if err := w.queue.PublishEvent(ctx, "other", ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Events are handled in any order, so the test waits for the task of each event that matches.
	for i := 11; i < 20; i++ {
		out, err := w.TestTrigger(ctx, "acme", "large", order(strconv.Itoa(i), fmt.Sprintf(`{"total": %d}`, i*10)))
		if err != nil || !out.Matches {
			t.Fatalf("TestTrigger = %+v, %v; want a match", out, err)
		}
		rec := w.await(ctx, t, out.TaskID)
		want := fmt.Sprintf(`{"total":%d}`, i*10)
		if rec.Result.Output != want || rec.Source != "/codefleet/triggers/large" {
			t.Errorf("task of event %d has the inputs %s, want %s", i, rec.Result.Output, want)
		}
	}
	for tenant, want := range map[string]int{"acme": 9, "other": 0} {
		list, err := w.queue.List(ctx, tenant, jobs.ListOptions{})
		if err != nil || len(list) != want {
			t.Errorf("tasks of %s = %d, %v; want %d", tenant, len(list), err, want)
		}
	}
}

// await waits until a task exists and has ended.
func (w *world) await(ctx context.Context, t *testing.T, id string) schemas.Record {
	t.Helper()
	for {
		rec, err := w.queue.Wait(ctx, "acme", id)
		if err == nil {
			return rec
		}
		if ctx.Err() != nil {
			t.Fatalf("Wait(%s) = %v, want its record", id, err)
		}
	}
}

// TestChainEnds has a trigger that fires itself: the results of its tasks match it. It ends after eight tasks.
func TestChainEnds(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 1, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	})
	if _, err := w.AddTrigger(ctx, "acme", schemas.TriggerSpec{
		Name: "loop", Type: schemas.TypeResult, Task: []byte(`{"code":"x"}`),
	}); err != nil {
		t.Fatal(err)
	}
	rec, err := w.queue.Submit(ctx, "acme", taskOf(t, "first"))
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	var doc schemas.Trigger
	err = w.store.Watch(watching, func(a jobs.Automation) {
		if json.Unmarshal(a.Data, &doc) == nil && doc.LastError != "" {
			stop()
		}
	})
	if err != nil || doc.LastError != "8 triggers have led to the event, which is the limit" {
		t.Fatalf("Watch = %v, last error %q; want that the chain ends", err, doc.LastError)
	}
	list, err := w.queue.List(ctx, "acme", jobs.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var depths []int
	for _, r := range list {
		depths = append(depths, engine.Depth(r))
	}
	if diff := cmp.Diff([]int{8, 7, 6, 5, 4, 3, 2, 1, 0}, depths); diff != "" || list[8].TaskID != rec.TaskID {
		t.Errorf("depths of the tasks, the latest first (-want +got):\n%s", diff)
	}
	if err := w.RemoveTrigger(ctx, "acme", "loop"); err != nil {
		t.Errorf("RemoveTrigger = %v, want nil", err)
	}
}

func taskOf(t *testing.T, id string) event.Event {
	t.Helper()
	ev, err := taskEvent("/test", id, time.Now(), []byte(`{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// TestOldResultsTriggerNothing checks that a trigger that was refused leaves nothing behind that a later one acts on.
func TestOldResultsTriggerNothing(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx := w.start(t, 1, func(context.Context, *jobs.Job) (*schemas.Result, error) {
		return &schemas.Result{Status: schemas.Succeeded}, nil
	})
	if _, err := w.AddTrigger(ctx, "acme", onOrder("taken", "")); err != nil {
		t.Fatal(err)
	}
	onResults := schemas.TriggerSpec{
		Name: "taken", Type: schemas.TypeResult, Filter: "data.source == '/test'", Task: []byte(`{"code":"x"}`),
	}
	if _, err := w.AddTrigger(ctx, "acme", onResults); code(err) != "automation_exists name" {
		t.Fatalf("AddTrigger with a name that is taken = %v, want automation_exists", err)
	}
	run := func(id string) schemas.Record {
		t.Helper()
		rec, err := w.queue.Submit(ctx, "acme", taskOf(t, id))
		if err != nil {
			t.Fatal(err)
		}
		return w.await(ctx, t, rec.TaskID)
	}
	run("before")
	onResults.Name = "later"
	if _, err := w.AddTrigger(ctx, "acme", onResults); err != nil {
		t.Fatal(err)
	}
	after := run("after")
	result := event.New()
	result.SetID(after.TaskID + ".1")
	result.SetSource("/codefleet")
	result.SetType(schemas.TypeResult)
	if err := result.SetData(event.ApplicationJSON, after.Result); err != nil {
		t.Fatal(err)
	}
	matched, err := w.TestTrigger(ctx, "acme", "later", result)
	if err != nil || !matched.Matches {
		t.Fatalf("TestTrigger = %+v, %v; want a match", matched, err)
	}
	w.await(ctx, t, matched.TaskID)
	list, err := w.queue.List(ctx, "acme", jobs.ListOptions{})
	if err != nil || len(list) != 3 {
		t.Errorf("tasks = %d, %v; want those before and after the trigger was added, and one of the trigger",
			len(list), err)
	}
}

func TestRefusedEvents(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for want, change := range map[string]func(*event.Event){
		"bad_event type":         func(ev *event.Event) { ev.SetType("codefleet.task.v2") },
		"tenant_mismatch tenant": func(ev *event.Event) { ev.SetExtension("tenant", "other") },
		"bad_event":              func(ev *event.Event) { ev.SetID("") },
		"too_large": func(ev *event.Event) {
			ev.DataEncoded = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		},
	} {
		ev := order("1", "{}")
		change(&ev)
		if err := w.queue.PublishEvent(t.Context(), "acme", ev); code(err) != want {
			t.Errorf("PublishEvent = %q (%v), want %q", code(err), err, want)
		}
	}
	ev := order("1", "{}")
	for i := range 7 { // each attribute is within its limit
		ev.SetExtension(fmt.Sprint("long", i), strings.Repeat("x", 8<<10))
	}
	if err := w.queue.PublishEvent(t.Context(), "acme", ev); code(err) != "bad_event" {
		t.Errorf("PublishEvent with 56 KiB of attributes = %v, want bad_event", err)
	}
	ev = order("1", "{}")
	ev.SetExtension(jobs.ChainDepth, "x")
	if err := w.queue.PublishEvent(t.Context(), "acme", ev); code(err) != "bad_event chaindepth" {
		t.Errorf("PublishEvent with the depth x = %v, want bad_event", err)
	}
}
