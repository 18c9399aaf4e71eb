package automation

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/expression"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

const (
	kindTrigger = "trigger"
	maxPattern  = 256 // bytes of the pattern of a type or source
	maxProblem  = 500 // bytes of last_error

	// maxDepth is how many triggers may follow each other: the result of a task of this depth triggers nothing.
	maxDepth = 8
)

// matcher decides which events a trigger or a webhook matches.
type matcher struct {
	eventType, source string
	filter            *expression.Condition // nil matches any data
}

func newMatcher(in schemas.TriggerSpec) (m matcher, err error) {
	m = matcher{eventType: in.Type, source: in.Source}
	if in.Filter != "" {
		m.filter, err = expression.Compile(in.Filter, "event", "data")
	}
	return m, err
}

// match says whether an event matches.
type match struct {
	reason string // why it does not match; empty if it does
	failed bool   // the filter cannot be evaluated for the event
}

// matches returns whether the event matches. The error says that the filter was interrupted: the event is to be
// delivered again.
func (m matcher) matches(ctx context.Context, e *incoming) (match, error) {
	switch {
	case !names.MatchPattern(m.eventType, e.Type()):
		return match{reason: "the event has the type " + e.Type()}, nil
	case m.source != "" && !names.MatchPattern(m.source, e.Source()):
		return match{reason: "the event has the source " + e.Source()}, nil
	case m.filter == nil:
		return match{}, nil
	}
	values, err := e.variables()
	if err != nil {
		return match{filterFails + "data cannot be read: " + err.Error(), true}, nil //nolint:nilerr // it is the reason
	}
	holds, err := m.filter.Holds(ctx, values)
	switch {
	case expression.Interrupted(err):
		return match{}, fmt.Errorf("filter %q: %w", text.Truncate(m.filter.String(), 100), err)
	case err != nil:
		return match{filterFails + err.Error(), true}, nil //nolint:nilerr // it is the reason
	case !holds:
		return match{reason: "the filter is false"}, nil
	}
	return match{}, nil
}

// incoming is an event that is matched with a tenant's automations.
type incoming struct {
	event.Event
	depth  int            // number of triggers that have led to the event
	values map[string]any // the variables of filters; decoded when a filter first needs them
}

// newIncoming returns an event with the depth that it names.
func newIncoming(ev event.Event) (*incoming, error) {
	depth, err := jobs.Depth(ev)
	return &incoming{Event: ev, depth: depth}, err
}

// inputs returns the event's data as JSON: JSON as it is, other text as a string, and other data as a string in base64.
func (e *incoming) inputs() json.RawMessage {
	data := e.Data()
	switch {
	case len(data) == 0:
		return json.RawMessage("null")
	case json.Valid(data):
		return data
	case utf8.Valid(data):
		out, _ := json.Marshal(string(data)) // a string can be marshalled
		return out
	}
	out, _ := json.Marshal(base64.StdEncoding.EncodeToString(data))
	return out
}

// variables returns the values of the variables of filters. It decodes the event only once.
func (e *incoming) variables() (map[string]any, error) {
	if e.values != nil {
		return e.values, nil
	}
	data, err := expression.Decode(e.inputs())
	if err != nil {
		return nil, err
	}
	attributes, err := engine.Attributes(e.Event)
	if err != nil {
		return nil, err
	}
	e.values = map[string]any{"event": attributes, "data": data}
	return e.values, nil
}

// taskOf returns the event that submits the trigger's task for an event. Its id consists of the depth of the task and a
// hash of the event's source and id.
func (e *incoming) taskOf(in schemas.TriggerSpec) (event.Event, error) {
	hash := sha256.Sum256([]byte(e.Source() + "\x00" + e.ID()))
	id := fmt.Sprintf("%d-%s", e.depth+1, hex.EncodeToString(hash[:16]))
	task, err := withInputs(in.Task, e.inputs())
	if err != nil {
		return event.Event{}, err
	}
	return taskEvent(jobs.TriggerSource+in.Name, id, e.Time(), task)
}

// withInputs returns a task with the inputs. It refuses a task that has inputs already.
func withInputs(task, inputs json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(task, &fields); err != nil || fields == nil {
		return nil, refuse(errcode.BadData, "", "the task is not a JSON object")
	}
	if _, ok := fields["inputs"]; ok {
		return nil, refuse(errcode.BadData, "/inputs", "the inputs of a trigger's task are the event's data")
	}
	fields["inputs"] = inputs
	return json.Marshal(fields)
}

// AddTrigger stores a new trigger. It applies to events that are accepted after AddTrigger has returned. Adding the
// same trigger again returns the stored one; a different one with the same name is refused.
func (s *Service) AddTrigger(ctx context.Context, tenant string, in schemas.TriggerSpec) (schemas.Trigger, error) {
	if err := s.checkTrigger(ctx, tenant, in); err != nil {
		return schemas.Trigger{}, err
	}
	store, now, err := s.open(ctx)
	if err != nil {
		return schemas.Trigger{}, err
	}
	if names.MatchPattern(in.Type, schemas.TypeResult) {
		if err := s.changing.Lock(ctx); err != nil {
			return schemas.Trigger{}, err
		}
		defer s.changing.Unlock()
		// If the queue still keeps results for an earlier trigger, the new one would get those since then.
		if err := errors.Join(s.forgetResults(ctx, tenant), s.queue.KeepResults(ctx, tenant)); err != nil {
			return schemas.Trigger{}, err
		}
	}
	k := key{kindTrigger, tenant, in.Name}
	doc, exists, err := create(ctx, store, k, schemas.Trigger{TriggerSpec: in, CreatedAt: now})
	if exists && !equalJSON(doc.TriggerSpec, in) {
		return schemas.Trigger{}, nameTaken(k)
	}
	return doc, err
}

func (s *Service) checkTrigger(ctx context.Context, tenant string, in schemas.TriggerSpec) error {
	if err := checkName(in.Name); err != nil {
		return err
	}
	if in.Type == "" {
		return refuse(errcode.BadData, "/type", "a trigger needs the type of its events, such as order.created")
	}
	if err := checkMatcher(in); err != nil {
		return err
	}
	task, err := withInputs(in.Task, json.RawMessage("{}"))
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		r.Path = "/task" + strings.TrimSuffix(r.Path, "/")
	}
	if err != nil {
		return err
	}
	return s.checkTask(ctx, tenant, task)
}

// checkMatcher returns the error with which the patterns or the filter of a trigger or a webhook are refused.
func checkMatcher(in schemas.TriggerSpec) error {
	for path, pattern := range map[string]string{"/type": in.Type, "/source": in.Source} {
		if len(pattern) > maxPattern || strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
			return refuse(errcode.BadData, path, "it must be at most %d bytes, with * at its end only", maxPattern)
		}
	}
	if strings.HasPrefix(in.Type, jobs.ReservedTypes) && !names.MatchPattern(in.Type, schemas.TypeResult) {
		return refuse(errcode.BadData, "/type",
			"no event has the type %q: of the fleet's own types, only %s is an event", in.Type, schemas.TypeResult)
	}
	if _, err := newMatcher(in); err != nil {
		return refuse(errcode.BadData, "/filter", "%s", text.OneLine(err.Error()))
	}
	return nil
}

// Triggers lists a tenant's triggers, sorted by name.
func (s *Service) Triggers(ctx context.Context, tenant string) ([]schemas.Trigger, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return nil, err
	}
	return readAll[schemas.Trigger](ctx, store, kindTrigger, tenant)
}

// Trigger returns a trigger.
func (s *Service) Trigger(ctx context.Context, tenant, name string) (schemas.Trigger, error) {
	store, err := s.queue.Automations(ctx)
	if err != nil {
		return schemas.Trigger{}, err
	}
	doc, _, err := read[schemas.Trigger](ctx, store, key{kindTrigger, tenant, name})
	return doc, err
}

// RemoveTrigger deletes a trigger. Tasks that it has submitted continue.
func (s *Service) RemoveTrigger(ctx context.Context, tenant, name string) error {
	if err := s.remove(ctx, key{kindTrigger, tenant, name}); err != nil {
		return err
	}
	return s.forgetUnused(ctx, tenant)
}

// forgetUnused calls forgetResults while no automation is added.
func (s *Service) forgetUnused(ctx context.Context, tenant string) error {
	if err := s.changing.Lock(ctx); err != nil {
		return err
	}
	defer s.changing.Unlock()
	return s.forgetResults(ctx, tenant)
}

// forgetResults makes the queue stop keeping a tenant's results if no trigger and no webhook matches results, and stop
// keeping them in order if no webhook does.
func (s *Service) forgetResults(ctx context.Context, tenant string) error {
	triggers, err := s.Triggers(ctx, tenant)
	if err != nil {
		return err
	}
	webhooks, err := s.Webhooks(ctx, tenant)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(webhooks, func(w schemas.Webhook) bool {
		return names.MatchPattern(w.Type, schemas.TypeResult)
	}) {
		return nil
	}
	if err := s.queue.ForgetOrderedResults(ctx, tenant); err != nil {
		return err
	}
	if slices.ContainsFunc(triggers, func(t schemas.Trigger) bool {
		return names.MatchPattern(t.Type, schemas.TypeResult)
	}) {
		return nil
	}
	return s.queue.ForgetResults(ctx, tenant)
}

// TestTrigger returns what a trigger would do with an event. It submits nothing.
func (s *Service) TestTrigger(
	ctx context.Context, tenant, name string, ev event.Event,
) (out schemas.TriggerTest, err error) {
	doc, err := s.Trigger(ctx, tenant, name)
	if err != nil {
		return out, err
	}
	m, err := newMatcher(doc.TriggerSpec)
	if err != nil {
		return out, err
	}
	e, err := newIncoming(ev)
	if err != nil {
		return out, err
	}
	found, err := m.matches(ctx, e)
	if out.Reason = found.reason; err != nil || out.Reason != "" {
		return out, err
	}
	out.Matches = true
	if e.depth >= maxDepth {
		out.Reason = tooDeep
		return out, nil
	}
	task, err := e.taskOf(doc.TriggerSpec)
	if err == nil {
		err = s.queue.Check(ctx, tenant, task)
	}
	if r, ok := errors.AsType[*jobs.RefusedError](err); ok {
		out.Reason = r.Code + ": " + r.Message
		return out, nil
	}
	out.TaskID, out.Task = jobs.TaskID(tenant, task.Source(), task.ID()), task.Data()
	return out, err
}

var tooDeep = fmt.Sprintf("%d triggers have led to the event, which is the limit", maxDepth)

// dispatch submits the tasks of all triggers that match an event, passes the event on to the workflow runs that wait
// for it, and stores its deliveries to webhooks, unless they are sent in order. It applies all automations that exist
// when it is called. After an error it may be called again.
func (s *Service) dispatch(ctx context.Context, store *jobs.Automations, c *cache, tenant string, e *incoming) error {
	if err := awaitLatest(ctx, store, c); err != nil {
		return err
	}
	for _, t := range c.triggersOf(tenant) {
		found, err := t.matches(ctx, e)
		if err != nil {
			return err
		}
		if found.failed && !strings.HasPrefix(t.lastError, filterFails) {
			s.logNote(ctx, s.noteTrigger(ctx, store, tenant, t.spec.Name, found.reason))
		}
		if found.reason != "" {
			continue
		}
		if err := s.trigger(ctx, store, tenant, t.spec, e); err != nil {
			return err
		}
	}
	if err := s.wakeRuns(ctx, c, tenant, e); err != nil {
		return err
	}
	if jobs.InOrder(e.Event) { // see deliverOrdered
		return nil
	}
	return s.storeDeliveries(ctx, store, c, tenant, e)
}

// trigger submits the task of one trigger. If the queue refuses the task, or too many triggers have led to the event,
// it notes the reason in the trigger.
func (s *Service) trigger(
	ctx context.Context, store *jobs.Automations, tenant string, in schemas.TriggerSpec, e *incoming,
) error {
	problem := tooDeep
	if e.depth < maxDepth {
		task, err := e.taskOf(in)
		if err == nil {
			_, err = s.queue.Submit(ctx, tenant, task)
		}
		refused, isRefused := errors.AsType[*jobs.RefusedError](err)
		switch {
		case err == nil || errors.Is(err, jobs.ErrKeyReused):
			s.log.InfoContext(ctx, "trigger fired", "tenant", tenant, "trigger", in.Name,
				"task_id", jobs.TaskID(tenant, task.Source(), task.ID()))
			s.queue.CountAutomation(ctx, kindTrigger, outcomeDone)
			return nil
		case !isRefused:
			return fmt.Errorf("submit the task of trigger %s: %w", in.Name, err)
		}
		problem = refused.Code + ": " + refused.Message
	}
	s.queue.CountAutomation(ctx, kindTrigger, outcomeRefused)
	s.log.WarnContext(ctx, "trigger submitted no task", "tenant", tenant, "trigger", in.Name, "reason", problem)
	return s.noteTrigger(ctx, store, tenant, in.Name, problem)
}

// filterFails begins the reason why a filter has rejected an event for which it cannot be evaluated. The automation
// notes the first such reason only: a field that some events lack is no reason for a write at each of them.
const filterFails = "the filter cannot be evaluated: "

// logNote logs that a note in an automation failed: this must not keep the event from other automations.
func (s *Service) logNote(ctx context.Context, err error) {
	if err != nil {
		s.log.WarnContext(ctx, "last error of an automation not noted", "error", err)
	}
}

// noteTrigger notes in a trigger why it has submitted no task for an event.
func (s *Service) noteTrigger(ctx context.Context, store *jobs.Automations, tenant, name, problem string) error {
	return update(ctx, store, key{kindTrigger, tenant, name}, func(doc *schemas.Trigger) bool {
		return setError(&doc.LastError, problem)
	})
}

// setError sets the last error of an automation, and reports whether it was another one.
func setError(last *string, problem string) (changed bool) {
	before := *last
	*last = text.Truncate(text.OneLine(problem), maxProblem)
	return *last != before
}

// update changes a document with fn, which reports whether it has changed it. It does nothing if the document was
// removed, or if another process changes it at this moment.
func update[T any](ctx context.Context, store *jobs.Automations, k key, fn func(doc *T) (changed bool)) error {
	doc, rev, err := read[T](ctx, store, k)
	if _, removed := errors.AsType[*jobs.RefusedError](err); removed {
		return nil
	}
	if err != nil || !fn(&doc) {
		return err
	}
	if _, err = swap(ctx, store, k, doc, rev); errors.Is(err, jobs.ErrAutomationConflict) {
		return nil
	}
	return err
}
