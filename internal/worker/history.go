package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/selection"
)

// History is what the queue remembers of tenants' tasks, kept ready in memory. It is safe for concurrent use.
type History struct {
	queue *jobs.Client
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*remembered
}

// remembered is one tenant's.
type remembered struct {
	mu   sync.Mutex
	past []selection.Past
	next uint64 // sequence of what is not read yet
	all  *selection.History
}

const (
	historyTime    = 100 * time.Millisecond // for reading what is new
	historyKept    = 500                    // tasks of a tenant
	historyTenants = 1000                   // kept in memory; the rest is read again when it is wanted
)

// NewHistory returns the history that a queue keeps.
func NewHistory(queue *jobs.Client, log *slog.Logger) *History {
	return &History{queue: queue, log: log}
}

// Past reads what is new since the last time, as far as it can within its time.
func (h *History) Past(ctx context.Context, tenant string) *selection.History {
	r := h.of(tenant)
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, historyTime)
	defer stop()
	fresh, err := h.queue.History(ctx, tenant, r.next)
	if err != nil {
		h.log.DebugContext(ctx, "history not read", "tenant", tenant, "error", err)
		return r.all
	}
	if len(fresh) == 0 {
		return r.all
	}
	for _, m := range fresh {
		var p selection.Past
		if err := json.Unmarshal(m.Data, &p); err == nil { // what another version wrote is passed over
			r.past = append(r.past, p)
		}
		r.next = m.Seq + 1
	}
	r.past = r.past[max(0, len(r.past)-historyKept):]
	r.all = selection.NewHistory(r.past)
	return r.all
}

// of returns a tenant's, and makes room for it.
func (h *History) of(tenant string) *remembered {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.tenants[tenant]
	if ok {
		return r
	}
	if h.tenants == nil || len(h.tenants) >= historyTenants {
		h.tenants = map[string]*remembered{}
	}
	r = &remembered{next: 1}
	h.tenants[tenant] = r
	return r
}

// Remember keeps a task in the queue.
func (h *History) Remember(ctx context.Context, tenant string, p selection.Past) {
	data, err := json.Marshal(p)
	if err == nil {
		err = h.queue.AppendHistory(tenant, data)
	}
	if err != nil {
		h.log.DebugContext(ctx, "task not remembered", "tenant", tenant, "error", err)
	}
}

// ledger is the queue's account of tokens, by tenant and day.
type ledger struct {
	queue *jobs.Client
	limit func(tenant string) int
}

func (o Options) ledger(queue *jobs.Client) pipeline.Ledger {
	if o.DailyTokens == nil {
		return nil
	}
	return ledger{queue, o.DailyTokens}
}

// Left is what the tenant has not spent today.
func (l ledger) Left(ctx context.Context, tenant string) (left int, unlimited bool, err error) {
	limit := l.limit(tenant)
	if limit <= 0 {
		return 0, true, nil
	}
	spent, err := l.queue.Spent(ctx, tenant, time.Now())
	return max(0, limit-spent), false, err
}

// Spend counts tokens; those of a tenant without a limit too, so that a limit set later knows them.
func (l ledger) Spend(ctx context.Context, tenant string, tokens int) error {
	_, err := l.queue.Spend(ctx, tenant, time.Now(), tokens)
	return err
}
