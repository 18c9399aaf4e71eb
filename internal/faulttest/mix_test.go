package faulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/automation"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/internal/state"
	workflows "github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// mix is what the fleet of TestChaos does besides the tasks that the test submits: a schedule fires, events trigger
// tasks, and a webhook receives all results of a tenant. The trigger's tasks have no partition key; that of all others
// is their workspace.
type mix struct {
	f         *fleet
	service   *automation.Service
	tenant    string
	triggered state.Ref // workspace of the trigger's tasks
	scheduled state.Ref // workspace of the schedule's tasks
	created   time.Time // of the schedule
	events    []string  // names of the events that were accepted

	mu         sync.Mutex
	deliveries map[string]map[string]bool // ids of the deliveries of a task's results, by task id
	arrived    map[string][]string        // ids of results in the order of their first arrival, by partition key
	tries      int
}

const (
	interval   = 3 * time.Second // of the schedule
	flakyEvery = 7               // the webhook's target refuses every seventh request
)

// startMix adds the automations of a tenant.
func startMix(t *testing.T, f *fleet, tenant string) *mix {
	t.Helper()
	m := &mix{
		f: f, service: automation.New(f.queue, workflows.New(f.queue, roleLog()), loopback, roleLog()), tenant: tenant,
		triggered:  state.Ref{Tenant: tenant, Workspace: "triggered"},
		scheduled:  state.Ref{Tenant: tenant, Workspace: "scheduled"},
		deliveries: map[string]map[string]bool{}, arrived: map[string][]string{},
	}
	target := httptest.NewServer(http.HandlerFunc(m.receive))
	t.Cleanup(target.Close)
	task := func(ref state.Ref, code string, inputs any) json.RawMessage {
		fields := map[string]any{
			"code": fmt.Sprintf(code, counterFile), "workspace": ref.Workspace,
			"retry": map[string]any{"attempts": 100},
		}
		if inputs != nil {
			fields["inputs"] = inputs
		}
		if ref != m.triggered {
			fields["partitionkey"] = ref.Workspace
		}
		data, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	eventually(t, "automations", func(ctx context.Context) error {
		_, err := m.service.AddWebhook(ctx, tenant, schemas.WebhookSpec{
			Name: "all", URL: target.URL, NoHandshake: true,
		})
		return err
	})
	eventually(t, "automations", func(ctx context.Context) error {
		_, err := m.service.AddTrigger(ctx, tenant, schemas.TriggerSpec{
			Name: "ping", Type: "chaos.ping", Task: task(m.triggered, counting+"\nprint(name)", nil),
		})
		return err
	})
	eventually(t, "automations", func(ctx context.Context) error {
		s, err := m.service.AddSchedule(ctx, tenant, schemas.ScheduleSpec{
			Name: "tick", Cron: "@every " + interval.String(), Missed: schemas.MissedAll,
			Task: task(m.scheduled, incrementing, map[string]any{"sleep_s": 0.05}),
		})
		m.created = s.CreatedAt
		return err
	})
	return m
}

// receive handles the requests to the webhook's target.
func (m *mix) receive(w http.ResponseWriter, r *http.Request) {
	var ev struct{ ID, Subject, PartitionKey string }
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tries++; m.tries%flakyEvery == 0 {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	if m.deliveries[ev.Subject] == nil {
		m.deliveries[ev.Subject] = map[string]bool{}
	}
	m.deliveries[ev.Subject][r.Header.Get("Webhook-Id")] = true
	if key := ev.PartitionKey; key != "" && !slices.Contains(m.arrived[key], ev.ID) {
		m.arrived[key] = append(m.arrived[key], ev.ID)
	}
}

// ping sends an event, which triggers a task.
func (m *mix) ping(t *testing.T, n int) {
	t.Helper()
	name := fmt.Sprintf("ping-%04d", n)
	ev := event.New()
	ev.SetID(name)
	ev.SetSource(source)
	ev.SetType("chaos.ping")
	ev.SetTime(time.Now())
	if err := ev.SetData(event.ApplicationJSON, map[string]any{"name": name, "sleep_s": 0.05}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "event "+name, func(ctx context.Context) error { return m.f.queue.PublishEvent(ctx, m.tenant, ev) })
	m.events = append(m.events, name)
}

// end pauses the schedule, waits for the tasks of the automations and their deliveries, and returns these tasks and
// the number of firings. Firings that are missing, and results that were not delivered, are problems.
func (m *mix) end(t *testing.T, report *chaosReport, tasks []submitted) (all []submitted, firings int) {
	t.Helper()
	var handled time.Time
	eventually(t, "end of the schedule", func(ctx context.Context) error {
		s, err := m.service.PauseSchedule(ctx, m.tenant, "tick", true)
		handled = s.Handled
		return err
	})
	var found []schemas.Record
	eventually(t, "end of all tasks", func(ctx context.Context) error {
		found = slices.DeleteFunc(m.latest(t), func(r schemas.Record) bool { return r.Source == source })
		triggered := 0
		for _, r := range found {
			if r.Status == schemas.Dead {
				if _, err := m.f.queue.Redrive(ctx, r.Tenant, r.TaskID); err != nil {
					return fmt.Errorf("redrive task %s: %w", r.TaskID, err)
				}
				return fmt.Errorf("task %s was redriven and has not ended", r.TaskID)
			}
			if !r.Status.Terminal() {
				return fmt.Errorf("task %s is %s", r.TaskID, r.Status)
			}
			if strings.HasSuffix(r.Source, "/triggers/ping") {
				triggered++
			}
		}
		if triggered < len(m.events) {
			return fmt.Errorf("%d events have triggered %d tasks", len(m.events), triggered)
		}
		return nil
	})
	fired := map[string]bool{}
	for _, r := range found {
		task := submitted{ref: m.scheduled, id: r.TaskID}
		if strings.HasSuffix(r.Source, "/triggers/ping") {
			task = submitted{ref: m.triggered, id: r.TaskID, name: strings.TrimSpace(r.Result.Output)}
		} else {
			fired[r.EventID] = true
		}
		all = append(all, task)
	}
	for at := m.created.Truncate(interval).Add(interval); !at.After(handled); at = at.Add(interval) {
		if firings++; !fired[at.UTC().Format(time.RFC3339)] {
			report.Lost++
			report.problem("the schedule did not fire at %s", at.UTC().Format(time.RFC3339))
		}
	}
	// A firing that was under way while the schedule was paused may have submitted its task.
	if len(fired) > firings+1 {
		report.Twice += len(fired) - firings
		report.problem("the schedule fired %d times, want %d", len(fired), firings)
	}
	all = append(all, tasks...)
	m.awaitDeliveries(t, all)
	m.auditOrder(t, report)
	return all, len(fired)
}

// auditOrder compares the order in which results with a partition key have arrived with that of the tasks' ends.
func (m *mix) auditOrder(t *testing.T, report *chaosReport) {
	t.Helper()
	want := map[string][]string{}
	for _, r := range m.f.everyRecord(t) {
		id := fmt.Sprint(r.TaskID, ".", r.Run)
		if r.Tenant == m.tenant && r.Workspace != m.triggered.Workspace && r.Status.Terminal() && r.Result != nil &&
			!slices.Contains(want[r.Workspace], id) {
			want[r.Workspace] = append(want[r.Workspace], id)
		}
	}
	for key, ids := range want {
		var arrived []string
		eventually(t, "results of "+key, func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if arrived = slices.Clone(m.arrived[key]); len(arrived) < len(ids) {
				return fmt.Errorf("%d of %d have arrived", len(arrived), len(ids))
			}
			return nil
		})
		report.InOrder += len(arrived)
		if diff := cmp.Diff(ids, arrived); diff != "" {
			report.problem("results of %s arrived in a different order from the ends of the tasks (-want +got):\n%s",
				key, diff)
		}
	}
}

// latest returns the latest record of each task.
func (m *mix) latest(t *testing.T) []schemas.Record {
	t.Helper()
	last := map[string]schemas.Record{}
	for _, r := range m.f.everyRecord(t) {
		last[r.TaskID] = r
	}
	var list []schemas.Record
	for _, r := range last {
		list = append(list, r)
	}
	return list
}

// awaitDeliveries waits until the webhook has received the result of every task of the tenant.
func (m *mix) awaitDeliveries(t *testing.T, tasks []submitted) {
	t.Helper()
	eventually(t, "deliveries", func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		missing := map[string]int{} // by workspace
		for _, task := range tasks {
			if task.ref.Tenant == m.tenant && len(m.deliveries[task.id]) == 0 {
				missing[task.ref.Workspace]++
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("results of tasks are missing, by workspace: %v", missing)
		}
		return nil
	})
}

// received returns how many results the webhook has received, and in how many tries.
func (m *mix) received() (results, tries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ids := range m.deliveries {
		results += len(ids)
	}
	return results, m.tries
}

// pause returns a fault that pauses a target for one to three seconds.
func (f *fleet) pause(t *testing.T, target string) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		_, failed := f.queue.Pause(ctx, schemas.Pause{Target: target, Reason: "chaos"})
		if failed == nil {
			_ = clock.Sleep(ctx, time.Second+time.Duration(rng.Int64N(int64(2*time.Second))))
		}
		eventually(t, "resume of "+target, func(ctx context.Context) error { // also if only the response was lost
			_, err := f.queue.Resume(ctx, target)
			return err
		})
		if failed != nil {
			return faulttest.ErrBusy // the queue does not respond, or the test ends the faults
		}
		return nil
	}
}

// redrive is a fault that queues all dead-lettered tasks again.
func (f *fleet) redrive(ctx context.Context, _ *rand.Rand) error {
	for _, tenant := range chaosTenants {
		if _, err := f.queue.RedriveAll(ctx, tenant, "", 0, 1000); err != nil {
			return faulttest.ErrBusy // the queue does not respond
		}
	}
	return nil
}

// finish waits until a task has ended, and redrives it if it is dead-lettered.
func (f *fleet) finish(t *testing.T, task submitted) (rec schemas.Record) {
	t.Helper()
	defer func() {
		if t.Failed() {
			f.describe(t, task)
		}
	}()
	eventually(t, "end of "+task.name, func(ctx context.Context) (err error) {
		if rec, err = f.queue.Wait(ctx, task.ref.Tenant, task.id); err == nil && rec.Status == schemas.Dead {
			if _, err = f.queue.Redrive(ctx, task.ref.Tenant, task.id); err != nil {
				return fmt.Errorf("redrive it: %w", err)
			}
			return errors.New("it was redriven and has not ended")
		}
		return err
	})
	return rec
}

// cut returns a fault that closes the connections of a relay, or lets them hang, for up to 3 seconds.
func cut(r *faulttest.Relay) func(context.Context, *rand.Rand) error {
	var mu sync.Mutex // held while the relay does not forward
	return func(ctx context.Context, rng *rand.Rand) error {
		if !mu.TryLock() {
			return faulttest.ErrBusy
		}
		defer mu.Unlock()
		r.Set([]faulttest.Mode{faulttest.Refuse, faulttest.Hang}[rng.IntN(2)])
		defer r.Set(faulttest.Forward)
		_ = clock.Sleep(ctx, 100*time.Millisecond+time.Duration(rng.Int64N(int64(3*time.Second))))
		return nil
	}
}

// fillDisk is a fault that fills the disk of the NATS server for up to 5 seconds. Then it frees the disk and restarts
// the server.
func (f *fleet) fillDisk(ctx context.Context, rng *rand.Rand) error {
	if !f.filling.TryLock() {
		return faulttest.ErrBusy
	}
	defer f.filling.Unlock()
	path := filepath.Join(f.dir, "nats", "ballast")
	ballast, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = ballast.Write(block) // until no space is left
	}
	if err := ballast.Close(); err != nil {
		return err
	}
	_ = clock.Sleep(ctx, time.Second+time.Duration(rng.Int64N(int64(4*time.Second))))
	if err := os.Remove(path); err != nil {
		return err
	}
	return f.nats.KillAndRestart(ctx, rng)
}

// describe logs what the queue has of a task that has not ended.
func (f *fleet) describe(t *testing.T, task submitted) {
	t.Helper()
	rec, err := f.queue.Record(t.Context(), task.ref.Tenant, task.id)
	t.Logf("record of %s: %+v, %v", task.name, rec, err)
	tasks := f.stream(t, "TASKS")
	info, err := tasks.Info(t.Context(), jetstream.WithSubjectFilter("tasks.>"))
	if err != nil {
		t.Log(err)
		return
	}
	t.Logf("TASKS: %+v, cluster %+v", info.State, info.Cluster)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if m, err := tasks.GetMsg(t.Context(), seq); err == nil {
			t.Logf("message %d: %s %v", seq, m.Subject, m.Header)
		}
	}
	for c := range tasks.ListConsumers(t.Context()).Info() {
		t.Logf("consumer %s: delivered %+v, ack floor %+v, %d unacknowledged, %d redelivered, %d pending, cluster %+v",
			c.Name, c.Delivered, c.AckFloor, c.NumAckPending, c.NumRedelivered, c.NumPending, c.Cluster)
	}
}
