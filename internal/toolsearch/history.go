package toolsearch

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/selection"
)

// History records which tools the tasks of each tenant used. The queue's server stores it, and a cache in memory holds
// the latest tasks. It is safe for concurrent use.
type History struct {
	queue *jobs.Client
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*tenantHistory
}

type tenantHistory struct {
	mu   sync.Mutex
	past []selection.Past
	next uint64             // sequence number of the first message that is not read yet
	all  *selection.History // built from past
}

const (
	historyTime    = 100 * time.Millisecond // time limit for reading new messages
	historyKept    = 500                    // cached tasks of a tenant
	historyTenants = 1000                   // tenants in the cache, which is cleared when it is full
	historyTools   = 50                     // recorded tools of one task
)

// NewHistory returns the history that the queue's server stores.
func NewHistory(queue *jobs.Client, log *slog.Logger) *History {
	return &History{queue: queue, log: log}
}

// Past returns the history of the tenant's tasks, or nil if there is none. It spends at most 100 ms on reading new
// messages; if that fails, it returns the cached history.
func (h *History) Past(ctx context.Context, tenant string) *selection.History {
	t := h.of(tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, historyTime)
	defer stop()
	fresh, err := h.queue.History(ctx, tenant, t.next)
	if err != nil {
		h.log.DebugContext(ctx, "tool history not read", "tenant", tenant, "error", err)
		return t.all
	}
	if len(fresh) == 0 {
		return t.all
	}
	for _, m := range fresh {
		var p selection.Past
		if err := json.Unmarshal(m.Data, &p); err == nil { // skip messages of other versions
			t.past = append(t.past, p)
		}
		t.next = m.Seq + 1
	}
	t.past = t.past[max(0, len(t.past)-historyKept):]
	t.all = selection.NewHistory(t.past)
	return t.all
}

// of returns the cached history of a tenant.
func (h *History) of(tenant string) *tenantHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, ok := h.tenants[tenant]; ok {
		return t
	}
	if h.tenants == nil || len(h.tenants) >= historyTenants {
		h.tenants = map[string]*tenantHistory{}
	}
	t := &tenantHistory{next: 1}
	h.tenants[tenant] = t
	return t
}

// Record adds a successful task and the ids of the tools that it used. It does not wait for the server, so a message
// may be lost.
func (h *History) Record(ctx context.Context, tenant, description string, ids []string) {
	data, err := json.Marshal(selection.NewPast(description, ids[:min(len(ids), historyTools)]))
	if err == nil {
		err = h.queue.AppendHistory(tenant, data)
	}
	if err != nil {
		h.log.DebugContext(ctx, "tool history not recorded", "tenant", tenant, "error", err)
	}
}
