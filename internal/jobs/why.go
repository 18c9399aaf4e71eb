package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Why returns what a task waits for. If several rules hold the task, Why returns the one to remove first.
func (c *Client) Why(ctx context.Context, tenant, id string) (schemas.Why, error) {
	rec, err := c.find(ctx, tenant, id)
	if err != nil {
		return schemas.Why{}, err
	}
	w := schemas.Why{TaskID: rec.TaskID, Status: rec.Status}
	switch {
	case rec.Status.Terminal():
		w.Rule, w.Message = schemas.WhyEnded, "the task has ended: "+string(rec.Status)
	case rec.Status == schemas.Running:
		whyRunning(&w, rec.Record)
	case rec.Run == 0 && time.Now().Before(rec.NotBefore):
		w.Rule, w.Message, w.Until = schemas.WhyAt, "the caller asked for a later start", rec.NotBefore
	case rec.QueueSeq == 0:
		err = c.whyDelayed(ctx, &w, rec)
	default:
		err = c.whyQueued(ctx, &w, rec)
	}
	if err != nil {
		return schemas.Why{}, fmt.Errorf("find out what task %s waits for: %w", id, err)
	}
	return w, nil
}

func whyRunning(w *schemas.Why, rec schemas.Record) {
	pending := rec.Pending(time.Now())
	switch {
	case len(pending) > 0:
		w.Rule, w.Until = schemas.WhyApproval, pending[0].ExpiresAt
		w.Message = fmt.Sprintf("a call of %s/%s waits for approval", pending[0].Server, pending[0].Tool)
	case rec.WaitsFor == schemas.WaitsForMemory:
		w.Rule, w.Message = schemas.WhyMemory, "other tasks on "+rec.Worker+" use all memory for tasks"
	case rec.WaitsFor != "":
		w.Rule, w.Message = schemas.WhySandbox, "all boxes of "+rec.Worker+" are in use, or a new one is being created"
	default:
		w.Rule = schemas.WhyRunning
		w.Message = fmt.Sprintf("run %d of the task has begun on %s", rec.Run, rec.Worker)
	}
}

// whyDelayed explains a task whose record names no message. The message is in DELAYED, after a run or because of a
// rate; or it was moved from there to TASKS, or redriven, and has not been claimed since.
func (c *Client) whyDelayed(ctx context.Context, w *schemas.Why, rec storedRecord) error {
	m, _, err := c.queuedMessage(ctx, rec)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return c.whyQueued(ctx, w, rec)
	}
	if err != nil {
		return err
	}
	if rec.Status == schemas.RetryWait {
		whyRetry(w, rec.Record)
	} else {
		set, err := c.readControls(ctx, limitsKey+">")
		if err != nil {
			return err
		}
		rate := set.limitsOf(c.opts.Policy, rec.Tenant).TokenRate
		until, err := c.usedUpUntil(ctx, rec.Tenant, rateTokens, rate)
		if err != nil || until.IsZero() { // the delay has just ended, or a redriven task's lane is full
			return errors.Join(err, c.whyQueued(ctx, w, rec))
		}
		w.Rule, w.Message = schemas.WhyRate, "the tenant has used as many tokens of models as it may in this period"
	}
	at, _ := strings.CutPrefix(m.Header.Get("Nats-Schedule"), "@at ")
	w.Until, _ = time.Parse(time.RFC3339Nano, at) // zero if the header is missing
	return nil
}

// inShortDelay reports whether the delay after a run, which the task's message spends in TASKS, may not have ended.
func inShortDelay(rec schemas.Record) bool {
	n := len(rec.Attempts)
	return rec.Status == schemas.RetryWait && n > 0 && time.Since(rec.Attempts[n-1].EndedAt) < maxShortDelay
}

// whyRetry explains the delay after a run.
func whyRetry(w *schemas.Why, rec schemas.Record) {
	w.Rule, w.Message = schemas.WhyRetry, "the next run is delayed"
	if n := len(rec.Attempts); n > 0 {
		last := rec.Attempts[n-1]
		w.Message = fmt.Sprintf("run %d ended (%s), and the next one is delayed: %s",
			last.Run, last.Outcome, last.Error)
		if strings.HasPrefix(last.Error, errcode.NoKey+": ") {
			w.Rule = schemas.WhyNoKey
		}
	}
}

// whyQueued explains a task whose message is in TASKS.
func (c *Client) whyQueued(ctx context.Context, w *schemas.Why, rec storedRecord) error {
	l := lane{pool: rec.Pool, priority: rec.Priority, tenant: rec.Tenant}
	set, err := c.readControls(ctx, pauseKey+">", limitsKey+">", tenantKey+l.tenant)
	if err != nil {
		return err
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		return err
	}
	consumer, err := c.laneConsumer(ctx, l)
	if err != nil {
		return err
	}
	created := !c.inSettings(l.tenant) && set.hasTenant(l.tenant)
	serving := slices.DeleteFunc(slices.Clone(workers), func(worker schemas.Worker) bool {
		return !slices.Contains(worker.Pools, l.pool) || worker.State != "running" ||
			slices.Contains(worker.Declines, l.tenant) || created && worker.SettingsOnly
	})
	var estimate *float64
	if rec.QueueSeq != 0 { // otherwise the message's place in the lane is not known
		ahead, err := c.ahead(ctx, l, rec.QueueSeq, consumer.NumAckPending)
		if err != nil {
			return err
		}
		w.Ahead = &ahead
		if estimate, err = c.estimate(ctx, set, l, ahead, serving); err != nil {
			return err
		}
	}
	pause, paused := set.pauseOf(l)
	rate := set.limitsOf(c.opts.Policy, l.tenant).TaskRate
	until, err := c.usedUpUntil(ctx, l.tenant, rateTasks, rate)
	if err != nil {
		return err
	}
	limit := consumer.Config.MaxAckPending
	switch {
	case paused:
		whyPaused(w, pause)
	case len(serving) == 0:
		whyNoWorker(w, l, workers, created)
	case inShortDelay(rec.Record):
		whyRetry(w, rec.Record)
	case limit > 0 && consumer.NumAckPending >= limit:
		w.Rule, w.EstimateS = schemas.WhyCap, estimate
		w.Message = fmt.Sprintf("tenant %s runs %s in pool %s with priority %s, which is its limit",
			l.tenant, text.Count(consumer.NumAckPending, "task"), l.pool, l.priority)
	case !until.IsZero():
		w.Rule, w.Until = schemas.WhyRate, until
		w.Message = fmt.Sprintf("tenant %s has started as many tasks as it may in this period: %s", l.tenant, rate)
	default:
		w.Rule, w.EstimateS = schemas.WhyTurn, estimate
		w.Message = "all slots are in use, and other tasks have their turn first"
	}
	return nil
}

// estimate returns in how many seconds a queued task will start, or nil if the tenant has ended no task today or no
// worker serves it. It assumes that the tenant's tasks take as long as today's, and that tenants with tasks in the pool
// share its slots by weight.
func (c *Client) estimate(
	ctx context.Context, set *controls, l lane, ahead int, serving []schemas.Worker,
) (*float64, error) {
	now := time.Now()
	used, err := c.Usage(ctx, l.tenant, now, now)
	if err != nil || len(used) == 0 || used[0].Tasks == 0 || len(serving) == 0 {
		return nil, err
	}
	subjects, err := c.subjectCounts(ctx, streamTasks, "tasks."+l.pool+".*.*")
	if err != nil {
		return nil, err
	}
	weightOf := func(tenant string) float64 {
		return float64(*cmp.Or(set.limitsOf(c.opts.Policy, tenant).Weight, new(1)))
	}
	weights := map[string]float64{l.tenant: weightOf(l.tenant)}
	counts, _ := byLane(subjects)
	for other := range counts {
		weights[other.tenant] = weightOf(other.tenant)
	}
	slots, sum := 0, 0.0
	for _, worker := range serving {
		slots += worker.Slots
	}
	for _, weight := range weights {
		sum += weight
	}
	share := max(1, float64(slots)*weights[l.tenant]/sum)
	if limit := set.limitsOf(c.opts.Policy, l.tenant).MaxRunning; limit != nil {
		share = min(share, float64(*limit))
	}
	seconds := float64(ahead+1) * used[0].BoxSeconds / float64(used[0].Tasks) / share
	seconds = math.Round(seconds*10) / 10
	return &seconds, nil
}

func whyPaused(w *schemas.Why, p schemas.Pause) {
	w.Rule, w.Message = schemas.WhyPaused, "an operator has paused "+p.Target
	if p.Reason != "" {
		w.Message += ": " + p.Reason
	}
}

func whyNoWorker(w *schemas.Why, l lane, workers []schemas.Worker, created bool) {
	w.Rule, w.Message = schemas.WhyNoWorker, "no worker is running"
	if len(workers) == 0 {
		return
	}
	w.Message = fmt.Sprintf("no worker that runs serves task pool %s for tenant %s", l.pool, l.tenant)
	for _, worker := range workers {
		switch {
		case !slices.Contains(worker.Pools, l.pool):
		case slices.Contains(worker.Declines, l.tenant):
			w.Message += "; the sandbox of " + worker.Name + " is weaker than the tenant requires"
		case created && worker.SettingsOnly:
			w.Message += "; " + worker.Name + " serves only tenants that are in the settings"
		default:
			w.Message += "; " + worker.Name + " is " + worker.State
		}
	}
}

// laneConsumer returns the state of a lane's consumer, or the zero value if it does not exist.
func (c *Client) laneConsumer(ctx context.Context, l lane) (info jetstream.ConsumerInfo, err error) {
	consumer, err := c.js.Consumer(ctx, streamTasks, l.consumer())
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return info, nil
	}
	if err != nil {
		return info, err
	}
	return *consumer.CachedInfo(), nil
}

// ahead returns how many queued messages of a lane come before sequence seq. running is how many were delivered.
func (c *Client) ahead(ctx context.Context, l lane, seq uint64, running int) (int, error) {
	all, err := c.countFrom(ctx, streamTasks, l.subject(), 1)
	if err != nil {
		return 0, err
	}
	behind, err := c.countFrom(ctx, streamTasks, l.subject(), seq)
	return max(0, all-behind-running), err
}
