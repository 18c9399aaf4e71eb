// Package automation submits tasks without a request: at the times of tenants' schedules, and for the events that their
// triggers match. It sends events and results to their webhooks, and advances workflow runs when their waits are due.
//
// Every ingest and every worker runs a Service; none of them leads. They all know all schedules, and each acts when a
// firing is due. That the same task is submitted only once follows from its id, which is a hash of tenant, schedule and
// firing time: a second submission is the same task. The id of a trigger's task is a hash of tenant, trigger and event.
// The time is that of the NATS server, so that processes with wrong clocks fire neither early nor late.
//
// The key type is Service, with which tenants also change and list their automations.
package automation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/mutex"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

const (
	maxPerTenant = 500      // automations of each kind
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

	// changing is held while this process decides whether the queue keeps a tenant's results: an automation that is
	// added meanwhile would lose them. It does not exclude other processes.
	changing *mutex.Mutex
}

// New returns a service. It submits tasks to the queue, advances workflow runs with the engine runs, and may send to
// webhooks in the private networks. It acts on automations only during Run; the other methods do not need Run.
func New(queue *jobs.Client, runs *engine.Engine, private []netip.Prefix, log *slog.Logger) *Service {
	now := func(ctx context.Context, b *jobs.Automations) (time.Time, error) {
		now, _, err := b.Now(ctx)
		return now, err
	}
	return &Service{
		queue: queue, log: log, now: now, sender: newSender(private), runs: runs, changing: mutex.New(),
	}
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

// explainNotFound changes ErrAutomationNotFound into an error for the caller, and returns other errors unchanged.
func explainNotFound(err error, kind, name string) error {
	if !errors.Is(err, jobs.ErrAutomationNotFound) {
		return err
	}
	r := refuse(errcode.UnknownAutomation, "name", "there is no %s %s", kind, name)
	r.Hint = fmt.Sprintf("GET /v1/%ss lists them", kind)
	return r
}

// create stores the document of a new automation. If there is already one with its kind and name, create returns the
// stored one, and exists is true. It refuses the document if the tenant has too many of the kind.
func create[T any](ctx context.Context, store *jobs.Automations, k key, doc T) (stored T, exists bool, err error) {
	list, err := store.List(ctx, k.kind, k.tenant)
	if err != nil {
		return stored, false, err
	}
	named := func(a jobs.Automation) bool { return a.Name == k.name }
	if len(list) >= maxPerTenant && !slices.ContainsFunc(list, named) {
		r := refuse(errcode.AutomationLimit, "", "the tenant has %d %ss, which is the limit", len(list), k.kind)
		r.Hint = "remove some"
		return stored, false, r
	}
	if _, err = swap(ctx, store, k, doc, 0); !errors.Is(err, jobs.ErrAutomationConflict) {
		return doc, false, err
	}
	stored, _, err = read[T](ctx, store, k)
	return stored, err == nil, err
}

// nameTaken returns the error for a new automation whose name another one has.
func nameTaken(k key) error {
	r := refuse(errcode.AutomationExists, "name", "there is another %s with the name %s", k.kind, k.name)
	r.Hint = "choose another name, or remove that " + k.kind + " first"
	return r
}

// equalJSON reports whether two values are the same in JSON.
func equalJSON(a, b any) bool {
	first, errFirst := json.Marshal(a)
	second, errSecond := json.Marshal(b)
	return errFirst == nil && errSecond == nil && bytes.Equal(first, second)
}

// read returns a document and its revision.
func read[T any](ctx context.Context, store *jobs.Automations, k key) (doc T, rev uint64, err error) {
	if err := checkName(k.name); err != nil {
		return doc, 0, err
	}
	a, err := store.Get(ctx, k.kind, k.tenant, k.name)
	if err != nil {
		return doc, 0, explainNotFound(err, k.kind, k.name)
	}
	err = json.Unmarshal(a.Data, &doc)
	return doc, a.Revision, err
}

// readAll returns a tenant's documents of one kind, sorted by name.
func readAll[T any](ctx context.Context, store *jobs.Automations, kind, tenant string) ([]T, error) {
	list, err := store.List(ctx, kind, tenant)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b jobs.Automation) int { return strings.Compare(a.Name, b.Name) })
	docs := make([]T, len(list))
	for i, a := range list {
		if err := json.Unmarshal(a.Data, &docs[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind, a.Name, err)
		}
	}
	return docs, nil
}

// swap stores a document in place of revision rev; 0 means that it does not exist.
func swap(ctx context.Context, store *jobs.Automations, k key, doc any, rev uint64) (uint64, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return 0, fmt.Errorf("encode %s %s: %w", k.kind, k.name, err)
	}
	return store.Swap(ctx, jobs.Automation{Kind: k.kind, Tenant: k.tenant, Name: k.name, Data: data, Revision: rev})
}

// remove deletes a document that exists.
func (s *Service) remove(ctx context.Context, k key) error {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return err
	}
	if _, _, err := read[json.RawMessage](ctx, store, k); err != nil {
		return err
	}
	return store.Delete(ctx, k.kind, k.tenant, k.name)
}

// RemoveAll deletes all schedules, triggers and webhooks of a tenant that is removed: a later tenant of the same name
// must not inherit them. The queue stops keeping the tenant's results for them. It is idempotent. Tasks and workflow
// runs that they have begun continue.
func (s *Service) RemoveAll(ctx context.Context, tenant string) error {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []string{kindSchedule, kindTrigger, kindWebhook} {
		list, err := store.List(ctx, kind, tenant)
		if err != nil {
			return err
		}
		for _, a := range list {
			if err := store.Delete(ctx, kind, tenant, a.Name); err != nil {
				return err
			}
		}
	}
	return s.forgetUnused(ctx, tenant)
}

func checkName(name string) error {
	if err := schemas.CheckName("name", name); err != nil {
		return refuse(errcode.BadName, "name", "%s", err)
	}
	return nil
}

// Fields of a task's envelope that an automation may set, and those that it may not.
var (
	envelope  = []string{"workspace", "session", "priority", "replyto", "partitionkey"}
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
func (s *Service) checkTask(ctx context.Context, tenant string, task json.RawMessage) error {
	if len(task) > maxTask {
		r := refuse(errcode.TooLarge, "/task", "the task is %d bytes; the limit is %d", len(task), maxTask)
		r.Hint = "put large data into a workspace"
		return r
	}
	ev, err := taskEvent("check", "check", time.Unix(0, 0), task)
	if err == nil {
		err = checkEnvelope(task)
	}
	if err == nil {
		err = s.queue.Check(ctx, tenant, ev)
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		moved := *r
		moved.Path = strings.TrimSuffix("/task/"+strings.TrimPrefix(r.Path, "/"), "/")
		return &moved
	}
	return err
}

// checkEnvelope refuses a field of the envelope that is null or empty, as submissions do: the caller may not have meant
// its default. taskEvent accepts it, because a stored automation may have it.
func checkEnvelope(task json.RawMessage) error {
	var fields map[string]any
	if err := json.Unmarshal(task, &fields); err != nil {
		return refuse(errcode.BadData, "", "the task is not a JSON object")
	}
	for _, name := range envelope {
		if v, ok := fields[name]; ok && (v == nil || v == "") {
			return refuse(errcode.BadData, "/"+name, "it is empty: leave it out for its default")
		}
	}
	return nil
}
