package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/schemas"
)

// limitsOf returns the limits of a tenant that apply: those that were set at run time, or else the settings'.
func (s *controls) limitsOf(policy Policy, tenant string) schemas.TenantLimits {
	var limits schemas.TenantLimits
	if policy != nil {
		p, _ := policy(tenant)
		if limits = p.Limits; p.MaxRunning > 0 {
			limits.MaxRunning = &p.MaxRunning
		}
	}
	if s != nil && len(s.limits) > 0 {
		limits = s.limits[tenant].Over(limits)
	}
	return limits
}

// SetLimits replaces the limits of a tenant that were set at run time. The zero value restores those of the
// settings. The error is a *RefusedError if the tenant or a limit is not valid.
func (c *Client) SetLimits(
	ctx context.Context, tenant string, set schemas.TenantLimits,
) (info schemas.TenantLimitsInfo, err error) {
	if err := c.checkTenant(ctx, "tenant", tenant); err != nil {
		return info, err
	}
	if path, err := set.Check(); err != nil {
		return info, refuse(errcode.BadData, path, "%s", err)
	}
	if set.IsZero() {
		_, err = c.dropControl(ctx, limitsKey+tenant)
	} else {
		err = c.putControl(ctx, limitsKey+tenant, set)
	}
	if err != nil {
		return info, err
	}
	return c.Limits(ctx, tenant)
}

// ChangeLimits is like SetLimits, but keeps the limits that change does not set.
func (c *Client) ChangeLimits(
	ctx context.Context, tenant string, change schemas.TenantLimits,
) (info schemas.TenantLimitsInfo, err error) {
	if err := c.checkTenant(ctx, "tenant", tenant); err != nil {
		return info, err
	}
	if path, err := change.Check(); err != nil {
		return info, refuse(errcode.BadData, path, "%s", err)
	}
	if change.IsZero() {
		return c.Limits(ctx, tenant)
	}
	err = errChanged
	for try := 0; errors.Is(err, errChanged) && try < swapTries; try++ {
		err = c.changeLimits(ctx, limitsKey+tenant, change)
	}
	if err != nil {
		return info, fmt.Errorf("change the limits of %s: %w", tenant, err)
	}
	return c.Limits(ctx, tenant)
}

var errChanged = errors.New("other processes change them at the same time")

// changeLimits reads the limits that were set at run time and writes them again with change applied. It returns
// errChanged if another process has changed them in between.
func (c *Client) changeLimits(ctx context.Context, key string, change schemas.TenantLimits) error {
	last, err := c.keyOfLeader(ctx, bucketControls, key)
	if err != nil {
		return err
	}
	var before schemas.TenantLimits
	if len(last.Data) > 0 { // the limits are set
		if err := json.Unmarshal(last.Data, &before); err != nil {
			return err
		}
	}
	data, err := json.Marshal(change.Over(before))
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = c.js.KeyValue(ctx, bucketControls)
	}
	if err == nil {
		_, err = kv.Update(ctx, key, data, last.Seq)
	}
	if isWrongRevision(err) {
		return errChanged
	}
	return err
}

// Limits returns the limits of a tenant.
func (c *Client) Limits(ctx context.Context, tenant string) (info schemas.TenantLimitsInfo, err error) {
	if err := c.checkTenant(ctx, "tenant", tenant); err != nil {
		return info, err
	}
	set, err := c.readControls(ctx, limitsKey+">")
	if err != nil {
		return info, err
	}
	return c.limitsInfo(set, tenant), nil
}

// AllLimits returns the limits of the tenants whose limits were set at run time, sorted by name.
func (c *Client) AllLimits(ctx context.Context) ([]schemas.TenantLimitsInfo, error) {
	set, err := c.readControls(ctx, limitsKey+">")
	if err != nil {
		return nil, err
	}
	all := []schemas.TenantLimitsInfo{}
	for _, tenant := range slices.Sorted(maps.Keys(set.limits)) {
		all = append(all, c.limitsInfo(set, tenant))
	}
	return all, nil
}

func (c *Client) limitsInfo(s *controls, tenant string) schemas.TenantLimitsInfo {
	info := schemas.TenantLimitsInfo{
		Tenant: tenant, Set: s.limits[tenant], Limits: s.limitsOf(c.opts.Policy, tenant),
	}
	info.Limits.Weight = cmp.Or(info.Limits.Weight, new(1))
	info.Limits.MaxRunning = cmp.Or(info.Limits.MaxRunning, new(defaultMaxRunning))
	return info
}

// checkBacklog returns ErrBacklogFull if the tenant has as many unfinished tasks as its limit. Without such a limit,
// tasks with a time or retries of their own, and those that need a model, are refused if as many tasks of the tenant
// wait in DELAYED as fit into a lane. Other tasks are not refused: they wait there only after a run that failed or
// could not begin. Tasks that arrive at the same time, or that a replica does not have yet, may exceed the limit by a
// few.
func (c *Client) checkBacklog(ctx context.Context, tenant string, task *schemas.Task) error {
	own := c.controls.Load().limitsOf(c.opts.Policy, tenant).Backlog
	limit, n := int(c.opts.Storage.MaxBacklog), 0
	switch {
	case own != nil:
		var err error
		if n, err = c.countFrom(ctx, streamTasks, "tasks.*.*."+tenant, 1); err != nil {
			return fmt.Errorf("count the tasks of %s: %w", tenant, err)
		}
		limit = *own
	case c.opts.Producer || task.NotBefore == nil && task.Retry == nil && (task.Description == "" || task.Code != ""):
		return nil
	}
	delayed, err := c.countFrom(ctx, streamDelayed, delayedPrefix+tenant+".*", 1)
	if err != nil {
		return fmt.Errorf("count the delayed tasks of %s: %w", tenant, err)
	}
	if n+delayed >= limit {
		return ErrBacklogFull
	}
	return nil
}

// What is counted against rates.
const (
	rateTasks  = "tasks"
	rateTokens = "tokens"
	rateTools  = "tool-" // calls of tools; followed by the encoded pattern of the tools
)

// countRate counts one run or call against a tenant's rate in the current period, and returns the counter for uncount,
// or "" if there is no rate. If the rate is exceeded, it counts nothing and returns the end of the period; otherwise,
// until is the zero time.
func (c *Client) countRate(
	ctx context.Context, tenant, what string, rate schemas.Rate,
) (counter string, until time.Time, err error) {
	limit, per, err := rate.Parse()
	if err != nil || per == 0 {
		return "", time.Time{}, err
	}
	begin := time.Now().Truncate(per)
	counter = rateSubject(tenant, what, begin)
	total, err := c.addTo(ctx, counter, 1)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("count %s of %s: %w", what, tenant, err)
	}
	if total <= limit {
		return counter, time.Time{}, nil
	}
	return "", begin.Add(per), c.uncount(ctx, counter)
}

// uncount undoes a count whose run or call did not take place. It ignores the counter "".
func (c *Client) uncount(ctx context.Context, counter string) error {
	if counter == "" {
		return nil
	}
	if _, err := c.addTo(ctx, counter, -1); err != nil {
		return fmt.Errorf("correct counter %s: %w", counter, err)
	}
	return nil
}

// AwaitToolRate waits until the tenant's rates permit another call of the tool with these names, and counts the call.
// If ctx ends first, it returns the cause. It tries again after maxHold, because another call that was counted may not
// take place.
func (j *Job) AwaitToolRate(ctx context.Context, tool []string) error {
	for {
		until, err := j.r.countCall(ctx, tool)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		if until.IsZero() {
			return nil
		}
		if clock.Sleep(ctx, min(time.Until(until), maxHold)) != nil {
			return context.Cause(ctx)
		}
	}
}

// countCall counts a call against each rate that matches the tool. If one is exceeded, it counts nothing and returns
// the end of this rate's period; otherwise, until is the zero time.
func (r *run) countCall(ctx context.Context, tool []string) (until time.Time, err error) {
	rates := r.w.limitsOf(r.tenant).ToolRates
	noMatch := func(pattern string) bool { return !names.MatchTool(pattern, tool) }
	patterns := slices.DeleteFunc(slices.Sorted(maps.Keys(rates)), noMatch)
	what := func(pattern string) string { return rateTools + subjectEncoding.EncodeToString([]byte(pattern)) }
	// All rates are read first: a count that is undone keeps other calls waiting in the meantime.
	for _, pattern := range patterns {
		until, err = r.w.c.usedUpUntil(ctx, r.tenant, what(pattern), rates[pattern])
		if err != nil || !until.IsZero() {
			return until, err
		}
	}
	var counters []string
	for _, pattern := range patterns {
		var counter string
		counter, until, err = r.w.c.countRate(ctx, r.tenant, what(pattern), rates[pattern])
		if counters = append(counters, counter); err != nil || !until.IsZero() {
			break
		}
	}
	if err == nil && until.IsZero() {
		return until, nil
	}
	ctx, cancel := UntilExit(ctx)
	defer cancel()
	for _, counter := range counters {
		err = errors.Join(err, r.w.c.uncount(ctx, counter))
	}
	return until, err
}

// CountTokens counts model tokens that the run has used, whether or not it completes the task.
func (j *Job) CountTokens(ctx context.Context, tokens int) error {
	if j.r == nil { // a test made it
		return nil
	}
	j.r.w.tally.countTokens(j.r.tenant, tokens)
	return j.r.w.spendTokens(ctx, j.r.tenant, tokens)
}

// spendTokens counts the model tokens of a run against the tenant's rate.
func (w *Worker) spendTokens(ctx context.Context, tenant string, tokens int) error {
	_, per, err := w.limitsOf(tenant).TokenRate.Parse()
	if err != nil || per == 0 || tokens == 0 {
		return err
	}
	_, err = w.c.addTo(ctx, rateSubject(tenant, rateTokens, time.Now().Truncate(per)), tokens)
	return err
}

// usedUpUntil returns when a rate permits more, or the zero time if it does now.
func (c *Client) usedUpUntil(ctx context.Context, tenant, what string, rate schemas.Rate) (time.Time, error) {
	limit, per, err := rate.Parse()
	if err != nil || per == 0 {
		return time.Time{}, err
	}
	begin := time.Now().Truncate(per)
	used, err := c.counter(ctx, streamRates, rateSubject(tenant, what, begin))
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s of %s: %w", what, tenant, err)
	}
	if used < limit {
		return time.Time{}, nil
	}
	return begin.Add(per), nil
}

// counter returns the value of a counter in the queue.
func (c *Client) counter(ctx context.Context, stream, subject string) (int, error) {
	m, err := c.lastOfLeader(ctx, stream, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parseCounter(m.Data)
}

func rateSubject(tenant, what string, begin time.Time) string {
	return "rate." + tenant + "." + what + "." + strconv.FormatInt(begin.Unix(), 36)
}

// addTo adds n to a counter in the queue and returns the sum. After an error, n may or may not be counted.
func (c *Client) addTo(ctx context.Context, subject string, n int) (total int, err error) {
	msg := nats.NewMsg(subject)
	msg.Header.Set("Nats-Incr", strconv.Itoa(n))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, err
	}
	return parseCounter(response.Data)
}
