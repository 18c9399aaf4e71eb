package automation

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/workflow/engine"
	"github.com/codefleet/codefleet/schemas"
)

// key identifies an automation.
type key struct{ kind, tenant, name string }

// agenda is what a process knows of all automations.
type agenda struct {
	mu    sync.Mutex
	due   map[key]time.Time // the next firing or attempt of each schedule
	rev   map[key]uint64    // of the document that is known
	skew  time.Duration     // the fleet's time minus this host's
	woken chan struct{}     // the earliest firing or resultTenants may have changed

	triggers map[string]map[string]trigger // by tenant and name
	webhooks map[string]map[string]webhook // by tenant and name
	sending  map[key]int                   // requests of this process to each webhook; with no name, of each tenant
	runs     map[key]runAlarm              // of workflow runs that have not ended
	runWoken chan struct{}                 // the earliest of them may have changed
	runSkew  time.Duration                 // the queue's time, by which runs go on, minus this host's
	latest   uint64                        // the latest revision that was learned
	skipped  bool                          // revisions before latest may be missing: see note
	learned  chan struct{}                 // closed when latest grows, or skipped ends
}

// trigger is a trigger with its compiled filter.
type trigger struct {
	matcher
	spec schemas.TriggerSpec
}

// webhook is a webhook with its compiled filter.
type webhook struct {
	matcher
	doc schemas.Webhook
}

func newAgenda() *agenda {
	return &agenda{
		due: map[key]time.Time{}, rev: map[key]uint64{}, woken: make(chan struct{}, 1),
		triggers: map[string]map[string]trigger{}, webhooks: map[string]map[string]webhook{}, sending: map[key]int{},
		runs: map[key]runAlarm{}, runWoken: make(chan struct{}, 1), learned: make(chan struct{}),
		skipped: true,
	}
}

// learn updates the agenda with a document, as Automations.Watch calls it.
func (a *agenda) learn(d jobs.Automation) {
	switch d.Kind {
	case kindSchedule:
		var doc schemas.Schedule
		if d.Data == nil || json.Unmarshal(d.Data, &doc) == nil {
			a.set(d.Tenant, d.Name, withNext(d.Tenant, doc).Next, d.Revision)
		}
	case kindTrigger:
		var doc schemas.Trigger
		err := json.Unmarshal(d.Data, &doc) // an error if it was deleted
		m, invalid := newMatcher(doc.TriggerSpec)
		learnNamed(a, a.triggers, d, trigger{m, doc.TriggerSpec}, err == nil && invalid == nil)
	case kindWebhook:
		var doc schemas.Webhook
		err := json.Unmarshal(d.Data, &doc)
		m, invalid := newMatcher(schemas.TriggerSpec{Type: doc.Type, Filter: doc.Filter})
		learnNamed(a, a.webhooks, d, webhook{m, doc}, err == nil && invalid == nil)
	}
	if d.Kind == engine.KindAlarm {
		a.learnRun(d)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(d)
	a.wake()
}

// note records that d was learned, for awaitRevision. The bucket keeps only the last change of each document. A gap in
// the revisions is a change that was replaced by a later one before it could be learned. The later change is pending,
// so nothing is missing once no changes are pending.
func (a *agenda) note(d jobs.Automation) {
	if d.Revision > a.latest+1 && d.Kind != "" {
		a.skipped = true
	}
	if d.Pending == 0 {
		a.skipped = false
	}
	a.latest = max(a.latest, d.Revision)
	close(a.learned)
	a.learned = make(chan struct{})
}

// learnNamed replaces what is known of d by v, or forgets it.
func learnNamed[T any](a *agenda, known map[string]map[string]T, d jobs.Automation, v T, exists bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case exists && known[d.Tenant] == nil:
		known[d.Tenant] = map[string]T{d.Name: v}
	case exists:
		known[d.Tenant][d.Name] = v
	default:
		delete(known[d.Tenant], d.Name)
		if len(known[d.Tenant]) == 0 {
			delete(known, d.Tenant)
		}
	}
}

// triggersOf returns the triggers of a tenant.
func (a *agenda) triggersOf(tenant string) (list []trigger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.triggers[tenant] {
		list = append(list, t)
	}
	return list
}

// webhooksOf returns the webhooks of a tenant.
func (a *agenda) webhooksOf(tenant string) (list []webhook) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.webhooks[tenant] {
		list = append(list, w)
	}
	return list
}

func (a *agenda) webhook(tenant, name string) (webhook, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.webhooks[tenant][name]
	return w, ok
}

// begin reports whether this process may send another request to a webhook. If so, call end after it.
func (a *agenda) begin(tenant, name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	hook, all := key{kindWebhook, tenant, name}, key{kind: kindWebhook, tenant: tenant}
	if a.sending[hook] >= perWebhook || a.sending[all] >= perTenant {
		return false
	}
	a.sending[hook]++
	a.sending[all]++
	return true
}

func (a *agenda) end(tenant, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range []key{{kindWebhook, tenant, name}, {kind: kindWebhook, tenant: tenant}} {
		if a.sending[k]--; a.sending[k] == 0 {
			delete(a.sending, k)
		}
	}
}

// resultTenants returns the tenants with triggers or webhooks that match results.
func (a *agenda) resultTenants() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	tenants := a.resultWebhooks()
	for tenant, list := range a.triggers {
		for _, t := range list {
			if names.MatchPattern(t.eventType, schemas.TypeResult) {
				tenants[tenant] = true
			}
		}
	}
	return tenants
}

// orderedTenants returns the tenants with webhooks that match results.
func (a *agenda) orderedTenants() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resultWebhooks()
}

// resultWebhooks requires a.mu.
func (a *agenda) resultWebhooks() map[string]bool {
	tenants := map[string]bool{}
	for tenant, list := range a.webhooks {
		for _, w := range list {
			if names.MatchPattern(w.eventType, schemas.TypeResult) {
				tenants[tenant] = true
			}
		}
	}
	return tenants
}

// awaitRevision waits until all documents up to a revision are known.
func (a *agenda) awaitRevision(ctx context.Context, rev uint64) error {
	for {
		a.mu.Lock()
		known, learned := a.latest >= rev && !a.skipped, a.learned
		a.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-learned:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// set notes when a schedule fires next, unless the agenda has a later revision of it. The zero time means never.
func (a *agenda) set(tenant, name string, next time.Time, rev uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := key{kindSchedule, tenant, name}
	if rev < a.rev[k] {
		return
	}
	a.rev[k], a.due[k] = rev, next
	if next.IsZero() {
		delete(a.due, k)
	}
	a.wake()
}

func (a *agenda) wake() {
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// postpone tries a schedule again later.
func (a *agenda) postpone(k key, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.due[k]; ok {
		a.due[k] = time.Now().Add(a.skew + d)
	}
}

// next returns the time of the earliest firing.
func (a *agenda) next() (first time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.due {
		if !ok || t.Before(first) {
			first, ok = t, true
		}
	}
	return first, ok
}

func (a *agenda) sync(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skew = now.Sub(time.Now().Round(0))
}

func (a *agenda) now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Round(0).Add(a.skew)
}

// dueNow returns the schedules that are due, in random order.
func (a *agenda) dueNow() (list []key) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, t := range a.due {
		if !t.After(now) {
			list = append(list, k)
		}
	}
	return list
}
