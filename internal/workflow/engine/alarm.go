package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/workflow"
	"github.com/codefleet/codefleet/schemas"
)

// KindAlarm is the kind of the documents with alarms in the bucket of automations. Every worker and ingest follows
// them. A run that has ended has no alarm.
const KindAlarm = "run"

// Alarm says when a run goes on without the end of a task. It is comparable.
type Alarm struct {
	Next  time.Time `json:"next"`            // when a wait is due, or the run reaches its deadline
	Busy  bool      `json:"busy,omitempty"`  // tasks run: Tick is called regularly, because an advance may be lost
	Types string    `json:"types,omitempty"` // types of the events for which steps wait, each with a "\n" after it
}

// EventTypes returns the types of the events for which steps wait, which may be patterns.
func (a Alarm) EventTypes() []string {
	if !strings.HasSuffix(a.Types, "\n") { // an earlier version separated them by spaces
		return strings.Fields(a.Types)
	}
	return strings.Split(strings.TrimSuffix(a.Types, "\n"), "\n")
}

// joinTypes returns Alarm.Types. An earlier version also splits it at "\n".
func joinTypes(types []string) string {
	if len(types) == 0 {
		return ""
	}
	slices.Sort(types)
	return strings.Join(slices.Compact(types), "\n") + "\n"
}

// alarmDocument is an alarm as it is stored.
type alarmDocument struct {
	Alarm
	Rev uint64 `json:"rev"` // revision of the run's record: an older alarm does not replace a newer one
}

// or returns the alarm that rings whenever a or b does.
func (a Alarm) or(b Alarm) Alarm {
	types := joinTypes(append(a.EventTypes(), b.EventTypes()...))
	out := Alarm{Next: a.Next, Busy: a.Busy || b.Busy, Types: types}
	if a == (Alarm{}) || b != (Alarm{}) && b.Next.Before(a.Next) {
		out.Next = b.Next
	}
	return out
}

// alarmOf returns the alarm of a run; the zero alarm if it has ended.
func alarmOf(plan *workflow.Plan, run schemas.WorkflowRun) Alarm {
	if run.Status.Ended() {
		return Alarm{}
	}
	return Alarm{
		Next: workflow.NextAlarm(run), Busy: run.Status == schemas.WorkflowRunning, Types: joinTypes(plan.Awaits(run)),
	}
}

// widenAlarm makes the alarm of a run also ring when need does. It is called before a change of the run's record is
// written; rev is the record's revision before the change. A process that is lost between the two writes leaves an
// alarm that rings once too often. In the other order, it could leave a run that no process advances again. An alarm
// that is wide enough gets the later revision, so that the process that made the change before does not narrow it.
func (e *Engine) widenAlarm(ctx context.Context, run schemas.WorkflowRun, need Alarm, rev uint64) error {
	return e.changeAlarm(ctx, run, func(found alarmDocument) alarmDocument {
		return alarmDocument{found.or(need), max(found.Rev, rev+1)}
	})
}

// setAlarm stores the alarm of a run, or removes it if the run has ended. rev is the revision of the run's record. An
// alarm of a later revision is kept.
func (e *Engine) setAlarm(ctx context.Context, plan *workflow.Plan, run schemas.WorkflowRun, rev uint64) error {
	if run.Status.Ended() {
		store, err := e.automations(ctx)
		if err != nil {
			return err
		}
		return store.Delete(ctx, KindAlarm, run.Tenant, run.RunID)
	}
	return e.changeAlarm(ctx, run, func(found alarmDocument) alarmDocument {
		if found == (alarmDocument{}) || found.Rev > rev { // if there is no alarm, the run has ended meanwhile
			return found
		}
		return alarmDocument{alarmOf(plan, run), rev}
	})
}

// changeAlarm changes the document of a run's alarm by compare-and-swap. change gets the zero document if the run has
// no alarm.
func (e *Engine) changeAlarm(
	ctx context.Context, run schemas.WorkflowRun, change func(alarmDocument) alarmDocument,
) error {
	store, err := e.automations(ctx)
	if err != nil {
		return err
	}
	for range swapTries {
		doc, err := store.Get(ctx, KindAlarm, run.Tenant, run.RunID)
		if errors.Is(err, jobs.ErrAutomationNotFound) {
			doc, err = jobs.Automation{Kind: KindAlarm, Tenant: run.Tenant, Name: run.RunID}, nil
		}
		var found alarmDocument
		if err == nil && doc.Data != nil {
			err = json.Unmarshal(doc.Data, &found)
		}
		if err != nil {
			return err
		}
		want := change(found)
		if want == found {
			return nil
		}
		if doc.Data, err = json.Marshal(want); err != nil {
			return err
		}
		if _, err = store.Swap(ctx, doc); !errors.Is(err, jobs.ErrAutomationConflict) {
			return err
		}
	}
	return errors.New("the alarm of workflow run " + run.RunID + " changes too often")
}

// Tick does what is due in a run, and repeats what its last advance began. since is when this process learned of
// the run's alarm: if the run does not exist after orphanTime, Tick removes the alarm.
func (e *Engine) Tick(ctx context.Context, tenant, id string, since time.Time) error {
	_, err := e.advance(ctx, tenant, id, workflow.Event{})
	if errors.Is(err, jobs.ErrRunNotFound) && e.Now(ctx).Sub(since) > orphanTime {
		var store *jobs.Automations
		if store, err = e.automations(ctx); err == nil {
			err = store.Delete(ctx, KindAlarm, tenant, id)
		}
	}
	return err
}

const orphanTime = 10 * time.Minute // after which an alarm without a run is removed
