package automation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a queue with a clock that the test sets.
type world struct {
	*Service
	store *jobs.Automations
	srv   *embedded.NATS
	at    time.Time
}

func newService(queue *jobs.Client, private []netip.Prefix) *Service {
	return New(queue, engine.New(queue, quiet), private, quiet)
}

func newWorld(t *testing.T, at string) *world {
	t.Helper()
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	w := &world{srv: srv, at: clockTime(t, at)}
	queue := w.connect(t)
	if err := queue.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Service = newService(queue, nil)
	w.now = func(context.Context, *jobs.Automations) (time.Time, error) { return w.at, nil }
	if w.store, err = queue.Automations(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) connect(t *testing.T) *jobs.Client {
	t.Helper()
	user := w.srv.Fleet()
	queue, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: w.srv},
		Credentials: jobs.Credentials{User: user.User, Password: user.Password}, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Close)
	return queue
}

func clockTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// fired sets the clock, fires what is due, and returns the firing times of all tasks so far, the oldest first.
func (w *world) fired(t *testing.T, at, name string) string {
	t.Helper()
	w.at = clockTime(t, at)
	if _, _, err := w.fire(t.Context(), w.store, "acme", name, w.at); err != nil {
		t.Fatalf("fire(%s) = %v, want nil", name, err)
	}
	return w.tasks(t, name)
}

func (w *world) tasks(t *testing.T, name string) string {
	t.Helper()
	list, err := w.queue.List(t.Context(), "acme", jobs.ListOptions{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var times []string
	for _, r := range list {
		if r.Source == "/codefleet/schedules/"+name {
			at := strings.TrimSuffix(r.EventID, ":00Z")
			times = append([]string{strings.TrimPrefix(at, "2026-11-")}, times...)
		}
	}
	return strings.Join(times, " ")
}

func spec(name, expression, missed string) schemas.ScheduleSpec {
	return schemas.ScheduleSpec{Name: name, Cron: expression, Missed: missed, Task: []byte(`{"code": "x"}`)}
}

// TestMissedFirings checks which firings take place when the fleet returns after some hours.
func TestMissedFirings(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for missed, want := range map[string]string{
		"skip": "23T12:00", "last": "23T12:00", "all": "23T09:00 23T10:00 23T11:00 23T12:00",
	} {
		w.at = clockTime(t, "2026-11-23T08:30:00Z")
		if _, err := w.AddSchedule(t.Context(), "acme", spec("on-time-"+missed, "@hourly", missed)); err != nil {
			t.Fatal(err)
		}
		if got := w.fired(t, "2026-11-23T12:00:30Z", "on-time-"+missed); got != want {
			t.Errorf("%s, back at 12:00:30: fired %q, want %q", missed, got, want)
		}
	}
	for missed, want := range map[string]string{
		"skip": "", "last": "23T12:00", "all": "23T09:00 23T10:00 23T11:00 23T12:00",
	} {
		w.at = clockTime(t, "2026-11-23T08:30:00Z")
		if _, err := w.AddSchedule(t.Context(), "acme", spec("late-"+missed, "@hourly", missed)); err != nil {
			t.Fatal(err)
		}
		if got := w.fired(t, "2026-11-23T12:10:00Z", "late-"+missed); got != want {
			t.Errorf("%s, back at 12:10: fired %q, want %q", missed, got, want)
		}
		// Missed firings are handled once.
		if got := w.fired(t, "2026-11-23T12:20:00Z", "late-"+missed); got != want {
			t.Errorf("%s, 10 minutes later: fired %q, want %q", missed, got, want)
		}
	}
	w.at = clockTime(t, "2026-11-01T00:00:00Z")
	if _, err := w.AddSchedule(t.Context(), "acme", spec("bounded", "* * * * *", "all")); err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(w.fired(t, "2026-11-20T00:00:00Z", "bounded"))); n != 100 {
		t.Errorf("all, after 19 days of minutes: fired %d times, want 100", n)
	}
}

// TestFiresOnce lets several processes fire the same schedule at once, also after one of them died between the task and
// the note that it was submitted.
func TestFiresOnce(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:59:00Z")
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@hourly", "")); err != nil {
		t.Fatal(err)
	}
	services := []*Service{w.Service}
	for range 3 {
		services = append(services, newService(w.connect(t), loopback))
	}
	w.at = clockTime(t, "2026-11-23T09:00:00Z")
	var all sync.WaitGroup
	for _, s := range services {
		all.Go(func() {
			_, _, err := s.fire(t.Context(), w.store, "acme", "s", w.at)
			if err != nil && !errors.Is(err, jobs.ErrAutomationConflict) {
				t.Errorf("fire = %v, want nil or a conflict", err)
			}
		})
	}
	all.Wait()
	if got := w.tasks(t, "s"); got != "23T09:00" {
		t.Errorf("four processes fired %q, want one firing", got)
	}
	doc, rev, err := readSchedule(t.Context(), w.store, "acme", "s")
	if err != nil {
		t.Fatal(err)
	}
	doc.Handled = clockTime(t, "2026-11-23T08:59:00Z")
	if _, err := writeSchedule(t.Context(), w.store, "acme", doc, rev); err != nil {
		t.Fatal(err)
	}
	if got := w.fired(t, "2026-11-23T09:00:20Z", "s"); got != "23T09:00" {
		t.Errorf("after a crash: fired %q, want the same firing once", got)
	}
}

// TestTimeGoesBack checks that a wrong time of the fleet, once corrected, does not silence a schedule.
func TestTimeGoesBack(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:59:00Z")
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@hourly", "")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ at, want string }{
		{"2026-11-23T09:00:00Z", "23T09:00"},
		{"2026-11-23T08:59:58Z", "23T09:00"}, // a small correction: fires neither again nor too late
		{"2026-11-23T09:00:01Z", "23T09:00"},
		{"2026-11-29T00:00:00Z", "23T09:00 29T00:00"}, // the time is days ahead
		{"2026-11-23T09:30:00Z", "23T09:00 29T00:00"}, // and is corrected
		{"2026-11-23T10:00:00Z", "23T09:00 29T00:00 23T10:00"},
	} {
		if got := w.fired(t, step.at, "s"); got != step.want {
			t.Fatalf("at %s: fired %q, want %q", step.at, got, step.want)
		}
	}
}

// TestTimeGoesBackWithJitter corrects the time between the time of a firing and its delayed time.
func TestTimeGoesBackWithJitter(t *testing.T) {
	w := newWorld(t, "2026-11-29T00:00:00Z")
	in := spec("k", "@hourly", "") // its delay is 29 min 21 s
	in.JitterS = maxJitter
	if _, err := w.AddSchedule(t.Context(), "acme", in); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ at, want string }{
		{"2026-11-23T09:15:00Z", ""},
		{"2026-11-23T09:29:21Z", "23T09:00"},
	} {
		if got := w.fired(t, step.at, "k"); got != step.want {
			t.Errorf("at %s: fired %q, want %q", step.at, got, step.want)
		}
	}
}

func TestPauseAndRun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	in := spec("s", "@hourly", "all")
	in.Zone = "Europe/Berlin"
	doc, err := w.AddSchedule(t.Context(), "acme", in)
	if err != nil || !doc.Next.Equal(clockTime(t, "2026-11-23T09:00:00Z")) {
		t.Fatalf("AddSchedule = %v, %v; want next at 09:00", doc.Next, err)
	}
	if doc, err = w.PauseSchedule(t.Context(), "acme", "s", true); err != nil || !doc.Paused || !doc.Next.IsZero() {
		t.Fatalf("PauseSchedule = %+v, %v; want a paused schedule that fires never", doc, err)
	}
	if got := w.fired(t, "2026-11-23T11:00:00Z", "s"); got != "" {
		t.Errorf("paused: fired %q, want nothing", got)
	}
	rec, err := w.RunSchedule(t.Context(), "acme", "s")
	if err != nil || rec.Status != schemas.Queued || rec.Source != "/codefleet/schedules/s" {
		t.Errorf("RunSchedule = %+v, %v; want a queued task", rec, err)
	}
	if _, err = w.PauseSchedule(t.Context(), "acme", "s", false); err != nil {
		t.Fatal(err)
	}
	got := w.fired(t, "2026-11-23T12:00:00Z", "s")
	if !strings.HasPrefix(got, "run/") || !strings.HasSuffix(got, " 23T12:00") || strings.Count(got, " ") != 1 {
		t.Errorf("resumed: fired %q, want the run and 12:00", got)
	}
	if err := w.RemoveSchedule(t.Context(), "acme", "s"); err != nil {
		t.Fatal(err)
	}
	if after := w.fired(t, "2026-11-23T13:00:00Z", "s"); after != got {
		t.Errorf("removed: fired %q, want %q", after, got)
	}
	if _, err := w.Schedule(t.Context(), "acme", "s"); code(err) != "unknown_automation name" {
		t.Errorf("Schedule = %v, want unknown_automation", err)
	}
}

func code(err error) string {
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		return strings.TrimSuffix(r.Code+" "+r.Path, " ")
	}
	return fmt.Sprint(err)
}

// TestRefusedSchedules checks the errors of schedules that cannot be added.
func TestRefusedSchedules(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for want, change := range map[string]func(*schemas.ScheduleSpec){
		"bad_name name":                 func(s *schemas.ScheduleSpec) { s.Name = "../x" },
		"bad_data /cron":                func(s *schemas.ScheduleSpec) { s.Cron = "61 * * * *" },
		"bad_data /zone":                func(s *schemas.ScheduleSpec) { s.Zone = "Mars/Olympus" },
		"bad_data /missed":              func(s *schemas.ScheduleSpec) { s.Missed = "some" },
		"bad_data /jitter_s":            func(s *schemas.ScheduleSpec) { s.JitterS = -1 },
		"bad_data /task/not_before":     func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"not_before":"2020-01-01T00:00:00Z"}`) },
		"bad_data /task/idempotencykey": func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"idempotencykey":"x"}`) },
		"bad_data /task":                func(s *schemas.ScheduleSpec) { s.Task = []byte(`{}`) },
		"bad_data /task/code":           func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"code":7}`) },
		"bad_event /task/priority":      func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"code":"x","priority":"urgent"}`) },
		"bad_name /task/workspace":      func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"code":"x","workspace":"../y"}`) },
		"bad_data /task/workspace":      func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"code":"x","workspace":""}`) },
		"bad_data /task/session":        func(s *schemas.ScheduleSpec) { s.Task = []byte(`{"code":"x","session":null}`) },
		"too_large /task": func(s *schemas.ScheduleSpec) {
			s.Task = fmt.Appendf(nil, `{"code":%q}`, strings.Repeat("x", 65<<10))
		},
	} {
		in := spec("s", "@hourly", "")
		change(&in)
		if _, err := w.AddSchedule(t.Context(), "acme", in); code(err) != want {
			t.Errorf("AddSchedule = %q (%v), want %q", code(err), err, want)
		}
	}
	if list, err := w.Schedules(t.Context(), "acme"); err != nil || len(list) != 0 {
		t.Errorf("Schedules = %v, %v; want none", list, err)
	}
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@hourly", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@hourly", "last")); err != nil {
		t.Errorf("AddSchedule of the same schedule = %v, want nil", err)
	}
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@daily", "")); code(err) != "automation_exists name" {
		t.Errorf("AddSchedule of another schedule = %v, want automation_exists", err)
	}
	if _, err := w.Schedule(t.Context(), "other", "s"); code(err) != "unknown_automation name" {
		t.Errorf("Schedule of another tenant = %v, want unknown_automation", err)
	}
}

// TestLimit adds one schedule more than a tenant may have. Adding one that exists stays possible.
func TestLimit(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	for i := range maxPerTenant {
		doc := schemas.Schedule{ScheduleSpec: spec(fmt.Sprintf("s%d", i), "@hourly", "last")}
		if _, err := writeSchedule(t.Context(), w.store, "acme", doc, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s", "@hourly", "")); code(err) != "automation_limit" {
		t.Errorf("AddSchedule at the limit = %v, want automation_limit", err)
	}
	if _, err := w.AddSchedule(t.Context(), "acme", spec("s7", "@hourly", "")); err != nil {
		t.Errorf("AddSchedule of a stored schedule at the limit = %v, want nil", err)
	}
	if _, err := w.AddSchedule(t.Context(), "other", spec("s", "@hourly", "")); err != nil {
		t.Errorf("AddSchedule of another tenant = %v, want nil", err)
	}
}

// TestTaskBecomesInvalid checks that a schedule whose task the queue no longer accepts says so, and stays.
func TestTaskBecomesInvalid(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	doc := schemas.Schedule{
		ScheduleSpec: spec("s", "@hourly", "last"), CreatedAt: w.at, Handled: w.at,
	}
	doc.Task = []byte(`{"code":"x","pool":"Not A Pool"}`)
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Swap(t.Context(),
		jobs.Automation{Kind: kindSchedule, Tenant: "acme", Name: "s", Data: data}); err != nil {
		t.Fatal(err)
	}
	if got := w.fired(t, "2026-11-23T09:00:00Z", "s"); got != "" {
		t.Errorf("fired %q, want nothing", got)
	}
	doc, err = w.Schedule(t.Context(), "acme", "s")
	if err != nil || !strings.HasPrefix(doc.LastError, "bad_data: ") || doc.LastTask != "" ||
		!doc.Next.Equal(clockTime(t, "2026-11-23T10:00:00Z")) {
		t.Errorf("Schedule = %+v, %v; want the error bad_data, and the next firing at 10:00", doc, err)
	}
}

func TestJitter(t *testing.T) {
	in := spec("s", "@hourly", "")
	in.JitterS = 60
	first := delayOf("acme", in)
	in.Name = "t"
	second := delayOf("acme", in)
	if diff := cmp.Diff([]time.Duration{29 * time.Second, 0}, []time.Duration{first, second}); diff != "" {
		t.Errorf("delays of two schedules (-want +got):\n%s", diff)
	}
}

// TestResumeWithJitter checks that delayed firings after a pause take place, and those during it do not.
func TestResumeWithJitter(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	in := spec("k", "@hourly", "") // its delay is 29 min 21 s
	in.JitterS = maxJitter
	if _, err := w.AddSchedule(t.Context(), "acme", in); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ pause, resume, next, want string }{
		{"09:10:00", "09:15:00", "09:29:21", "23T09:00"},
		{"10:10:00", "10:40:00", "11:29:21", "23T09:00 23T11:00"},
	} {
		var doc schemas.Schedule
		var err error
		for _, at := range []string{test.pause, test.resume} {
			w.at = clockTime(t, "2026-11-23T"+at+"Z")
			if doc, err = w.PauseSchedule(t.Context(), "acme", "k", at == test.pause); err != nil {
				t.Fatal(err)
			}
		}
		next := "2026-11-23T" + test.next + "Z"
		if !doc.Next.Equal(clockTime(t, next)) {
			t.Errorf("resumed at %s: next at %v, want %s", test.resume, doc.Next, next)
		}
		if got := w.fired(t, next, "k"); got != test.want {
			t.Errorf("resumed at %s: fired %q, want %q", test.resume, got, test.want)
		}
	}
}

// TestRun runs two services on the clock of the server.
func TestRun(t *testing.T) {
	w := newWorld(t, "2026-11-23T08:30:00Z")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	first := newService(w.queue, nil)
	for _, s := range []*Service{first, newService(w.connect(t), loopback)} {
		running.Go(func() { s.Run(ctx) })
	}
	doc, err := first.AddSchedule(ctx, "acme", spec("s", "@every 1s", ""))
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	last := doc.Handled.Add(4 * time.Second)
	err = w.store.Watch(watching, func(a jobs.Automation) {
		if json.Unmarshal(a.Data, &doc) == nil && !doc.LastAt.Before(last) {
			stop()
		}
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("Watch = %v, %v; want firings within a minute", err, ctx.Err())
	}
	list, err := w.queue.List(ctx, "acme", jobs.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fired := map[string]bool{}
	for _, r := range list {
		if fired[r.EventID] {
			t.Errorf("firing %s submitted two tasks, want one", r.EventID)
		}
		fired[r.EventID] = true
	}
	for at := doc.CreatedAt.Truncate(time.Second).Add(time.Second); !at.After(last); at = at.Add(time.Second) {
		if id := at.Format(time.RFC3339); !fired[id] {
			t.Errorf("fired %v, want also %s", fired, id)
		}
	}
}
