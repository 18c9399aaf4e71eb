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

// cache is a process's copy of all automations, with the times at which it is to act on them.
type cache struct {
	mu    sync.Mutex
	due   map[key]time.Time // when each schedule fires next, or is tried again after an error
	rev   map[key]uint64    // the known revision of each schedule that exists
	skew  time.Duration     // the fleet's time minus this host's
	woken chan struct{}     // the earliest firing or resultTenants may have changed

	triggers map[string]map[string]trigger // by tenant and name
	webhooks map[string]map[string]webhook // by tenant and name
	sending  map[key]int                   // requests in progress to each webhook, and, under no name, of each tenant
	runs     map[key]runAlarm              // the alarms of workflow runs that have not ended
	runWoken chan struct{}                 // the earliest alarm may have changed
	runSkew  time.Duration                 // the queue's time, by which runs go on, minus this host's
	latest   uint64                        // the latest revision that was learned
	skipped  bool                          // revisions before latest may be missing: see note
	learned  chan struct{}                 // closed when latest grows, or skipped ends
}

// trigger is a trigger with its compiled filter.
type trigger struct {
	matcher
	spec      schemas.TriggerSpec
	lastError string
}

// webhook is a webhook with its compiled filter.
type webhook struct {
	matcher
	doc schemas.Webhook
}

func newCache() *cache {
	return &cache{
		due: map[key]time.Time{}, rev: map[key]uint64{}, woken: make(chan struct{}, 1),
		triggers: map[string]map[string]trigger{}, webhooks: map[string]map[string]webhook{}, sending: map[key]int{},
		runs: map[key]runAlarm{}, runWoken: make(chan struct{}, 1), learned: make(chan struct{}),
		skipped: true,
	}
}

// learn updates the cache with a new, changed or deleted document. Automations.Watch calls it.
func (c *cache) learn(d jobs.Automation) {
	switch d.Kind {
	case kindSchedule:
		c.learnSchedule(d)
	case kindTrigger:
		var doc schemas.Trigger
		err := json.Unmarshal(d.Data, &doc) // an error if it was deleted
		m, invalid := newMatcher(doc.TriggerSpec)
		learnNamed(c, c.triggers, d, trigger{m, doc.TriggerSpec, doc.LastError}, err == nil && invalid == nil)
	case kindWebhook:
		var doc schemas.Webhook
		err := json.Unmarshal(d.Data, &doc)
		m, invalid := newMatcher(schemas.TriggerSpec{Type: doc.Type, Filter: doc.Filter})
		learnNamed(c, c.webhooks, d, webhook{m, doc}, err == nil && invalid == nil)
	}
	if d.Kind == engine.KindAlarm {
		c.learnRun(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(d)
	c.wake()
}

// learnSchedule notes when a schedule fires next, or forgets it if it was deleted.
func (c *cache) learnSchedule(d jobs.Automation) {
	var doc schemas.Schedule
	if d.Data != nil && json.Unmarshal(d.Data, &doc) != nil {
		return
	}
	k := key{d.Kind, d.Tenant, d.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setNextLocked(k, withNext(d.Tenant, doc).Next, d.Revision)
	if d.Data == nil && c.rev[k] == d.Revision {
		delete(c.rev, k)
	}
}

// note records that d was learned, for awaitRevision. The bucket keeps only the last change of each document. So a gap
// in the revisions is a change that was replaced by a later one before it could be learned. The later change is still
// pending then: nothing is missing once no changes are pending.
func (c *cache) note(d jobs.Automation) {
	if d.Revision > c.latest+1 && d.Kind != "" {
		c.skipped = true
	}
	if d.Pending == 0 {
		c.skipped = false
	}
	c.latest = max(c.latest, d.Revision)
	close(c.learned)
	c.learned = make(chan struct{})
}

// learnNamed replaces what is known of d with v, or forgets d if it does not exist.
func learnNamed[T any](c *cache, known map[string]map[string]T, d jobs.Automation, v T, exists bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
func (c *cache) triggersOf(tenant string) (list []trigger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.triggers[tenant] {
		list = append(list, t)
	}
	return list
}

// webhooksOf returns the webhooks of a tenant.
func (c *cache) webhooksOf(tenant string) (list []webhook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.webhooks[tenant] {
		list = append(list, w)
	}
	return list
}

func (c *cache) webhook(tenant, name string) (webhook, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.webhooks[tenant][name]
	return w, ok
}

// beginRequest reports whether this process may send another request to a webhook. If so, it counts the request, and
// the caller must call endRequest afterwards.
func (c *cache) beginRequest(tenant, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	hook, all := key{kindWebhook, tenant, name}, key{kind: kindWebhook, tenant: tenant}
	if c.sending[hook] >= perWebhook || c.sending[all] >= perTenant {
		return false
	}
	c.sending[hook]++
	c.sending[all]++
	return true
}

func (c *cache) endRequest(tenant, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []key{{kindWebhook, tenant, name}, {kind: kindWebhook, tenant: tenant}} {
		if c.sending[k]--; c.sending[k] == 0 {
			delete(c.sending, k)
		}
	}
}

// resultTenants returns the tenants with triggers or webhooks that match results.
func (c *cache) resultTenants() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	tenants := c.webhookResultTenantsLocked()
	for tenant, list := range c.triggers {
		for _, t := range list {
			if names.MatchPattern(t.eventType, schemas.TypeResult) {
				tenants[tenant] = true
			}
		}
	}
	return tenants
}

// webhookResultTenants returns the tenants with webhooks that match results.
func (c *cache) webhookResultTenants() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.webhookResultTenantsLocked()
}

// webhookResultTenantsLocked is webhookResultTenants for callers that hold the lock.
func (c *cache) webhookResultTenantsLocked() map[string]bool {
	tenants := map[string]bool{}
	for tenant, list := range c.webhooks {
		for _, w := range list {
			if names.MatchPattern(w.eventType, schemas.TypeResult) {
				tenants[tenant] = true
			}
		}
	}
	return tenants
}

// awaitRevision waits until all documents up to a revision are known.
func (c *cache) awaitRevision(ctx context.Context, rev uint64) error {
	for {
		c.mu.Lock()
		known, learned := c.latest >= rev && !c.skipped, c.learned
		c.mu.Unlock()
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

// setNext notes when a schedule that this process has fired fires next, unless the schedule was deleted meanwhile.
func (c *cache) setNext(k key, next time.Time, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, exists := c.rev[k]; exists {
		c.setNextLocked(k, next, rev)
	}
}

// setNextLocked notes when a schedule fires next, unless the cache has a later revision of it. The zero time means
// never. The caller holds the lock.
func (c *cache) setNextLocked(k key, next time.Time, rev uint64) {
	if rev < c.rev[k] {
		return
	}
	c.rev[k], c.due[k] = rev, next
	if next.IsZero() {
		delete(c.due, k)
	}
	c.wake()
}

func (c *cache) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// postpone makes a schedule due again after d.
func (c *cache) postpone(k key, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.due[k]; ok {
		c.due[k] = time.Now().Add(c.skew + d)
	}
}

// next returns the time of the earliest firing.
func (c *cache) next() (first time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.due {
		if !ok || t.Before(first) {
			first, ok = t, true
		}
	}
	return first, ok
}

// sync sets the fleet's time.
func (c *cache) sync(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = now.Sub(time.Now().Round(0))
}

func (c *cache) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.skew)
}

// dueNow returns the schedules that are due, in random order.
func (c *cache) dueNow() (list []key) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, t := range c.due {
		if !t.After(now) {
			list = append(list, k)
		}
	}
	return list
}
