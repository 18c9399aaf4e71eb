// Package automation submits tasks without a request: at the times of tenants' schedules, and for the events that their
// triggers match. It sends events and results to their webhooks.
//
// Every ingest and every worker runs a Service; none of them leads. They all know all schedules, and each acts when a
// firing is due. That the same task is submitted only once follows from its id, which is a hash of tenant, schedule and
// firing time: a second submission is the same task. So it is with triggers, whose tasks have a hash of tenant, trigger
// and event as their id. The time is that of the NATS server, so that processes with wrong
// clocks fire neither early nor late.
//
// The key type is Service, which also has the operations of tenants on them.
package automation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

const (
	// MaxPerTenant is how many automations of each kind a tenant may have.
	MaxPerTenant = 500
	maxTask      = 64 << 10 // bytes of the task of an automation
	swapTries    = 10
)

// Service acts on automations, and changes them for tenants. It is safe for concurrent use.
type Service struct {
	queue  *jobs.Client
	log    *slog.Logger
	now    func(context.Context, *jobs.Automations) (time.Time, error) // the fleet's time
	sender *http.Client
	runs   *engine.Engine
}

// New returns a service on a queue. Run starts it; the other methods do not need that. Webhooks may be in the private
// networks.
func New(queue *jobs.Client, private []netip.Prefix, log *slog.Logger) *Service {
	now := func(ctx context.Context, b *jobs.Automations) (time.Time, error) {
		now, _, err := b.Now(ctx)
		return now, err
	}
	return &Service{queue: queue, log: log, now: now, sender: newSender(private), runs: engine.New(queue, log)}
}

// open returns the bucket and the time.
func (s *Service) open(ctx context.Context) (*jobs.Automations, time.Time, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := s.now(ctx, store)
	return store, now.UTC().Truncate(time.Millisecond), err
}

func refuse(code, path, format string, args ...any) *jobs.RefusedError {
	return &jobs.RefusedError{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

// unknown changes ErrAutomationNotFound into an error for the caller.
func unknown(err error, kind, name string) error {
	if !errors.Is(err, jobs.ErrAutomationNotFound) {
		return err
	}
	r := refuse(errcode.UnknownAutomation, "name", "there is no %s %s", kind, name)
	r.Hint = fmt.Sprintf("GET /v1/%ss lists them", kind)
	return r
}

// create stores a new document. It refuses it if the tenant has too many of the kind.
func create(ctx context.Context, store *jobs.Automations, a jobs.Automation) error {
	list, err := store.List(ctx, a.Kind, a.Tenant)
	if err != nil {
		return err
	}
	if len(list) >= MaxPerTenant {
		r := refuse(errcode.AutomationLimit, "", "the tenant has %d %ss, which is the limit", len(list), a.Kind)
		r.Hint = "remove some"
		return r
	}
	_, err = store.Swap(ctx, a)
	return err
}

// remove deletes a document that exists.
func (s *Service) remove(ctx context.Context, kind, tenant, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return err
	}
	if _, err := store.Get(ctx, kind, tenant, name); err != nil {
		return unknown(err, kind, name)
	}
	return store.Delete(ctx, kind, tenant, name)
}

func checkName(name string) error {
	if err := schemas.CheckName("name", name); err != nil {
		return refuse(errcode.BadName, "name", "%s", err)
	}
	return nil
}

// Fields of a task's envelope that an automation may set, and those that it may not.
var (
	envelope  = []string{"workspace", "session", "priority", "replyto"}
	forbidden = []string{"idempotencykey", "source", "expirytime", "tenant", "not_before"}
)

// taskEvent returns the event that submits the task of an automation. Equal arguments return equal events.
func taskEvent(source, id string, at time.Time, task json.RawMessage) (event.Event, error) {
	ev := event.New()
	ev.SetID(id)
	ev.SetSource(source)
	ev.SetType(schemas.TypeTask)
	ev.SetTime(at)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(task, &fields); err != nil || fields == nil {
		return ev, refuse(errcode.BadData, "", "the task is not a JSON object")
	}
	for _, name := range forbidden {
		if _, ok := fields[name]; ok {
			return ev, refuse(errcode.BadData, "/"+name, "the task of an automation cannot set %s", name)
		}
	}
	for _, name := range envelope {
		raw, ok := fields[name]
		delete(fields, name)
		var v string
		if ok && json.Unmarshal(raw, &v) != nil {
			return ev, refuse(errcode.BadData, "/"+name, "it must be a string")
		}
		if v != "" {
			ev.SetExtension(name, v)
		}
	}
	data, err := json.Marshal(fields)
	if err == nil {
		err = ev.SetData(event.ApplicationJSON, json.RawMessage(data))
	}
	if err != nil {
		return ev, refuse(errcode.BadData, "", "the task is not JSON")
	}
	return ev, nil
}

// checkTask returns the error with which the queue would refuse the task of an automation.
func (s *Service) checkTask(tenant string, task json.RawMessage) error {
	if len(task) > maxTask {
		r := refuse(errcode.TooLarge, "/task", "the task is %d bytes; the limit is %d", len(task), maxTask)
		r.Hint = "put large data into a workspace"
		return r
	}
	ev, err := taskEvent("check", "check", time.Unix(0, 0), task)
	if err == nil {
		err = s.queue.Check(tenant, ev)
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		moved := *r
		moved.Path = "/task/" + strings.TrimPrefix(r.Path, "/")
		return &moved
	}
	return err
}
