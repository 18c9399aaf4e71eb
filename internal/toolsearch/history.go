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

// History is which tools the tasks of each tenant used. It is stored in the queue's server and cached
// in memory. It is safe for concurrent use.
type History struct {
	queue *jobs.Client
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*tenantHistory
}

type tenantHistory struct {
	mu   sync.Mutex
	past []selection.Past
	next uint64 // sequence of the first entry that is not read yet
	all  *selection.History
}

const (
	historyTime    = 100 * time.Millisecond // for reading new entries
	historyKept    = 500                    // tasks of a tenant
	historyTenants = 1000                   // in the cache; when it is full it starts anew
	historyTools   = 50                     // of one task
)

// NewHistory returns the history that a queue keeps.
func NewHistory(queue *jobs.Client, log *slog.Logger) *History {
	return &History{queue: queue, log: log}
}

// Past returns what is known of the tenant's tasks, as far as new entries can be read within 100 ms; nil
// when there is nothing.
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
		if err := json.Unmarshal(m.Data, &p); err == nil { // entries of other versions are skipped
			t.past = append(t.past, p)
		}
		t.next = m.Seq + 1
	}
	t.past = t.past[max(0, len(t.past)-historyKept):]
	t.all = selection.NewHistory(t.past)
	return t.all
}

func (h *History) of(tenant string) *tenantHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.tenants[tenant]
	if ok {
		return t
	}
	if h.tenants == nil || len(h.tenants) >= historyTenants {
		h.tenants = map[string]*tenantHistory{}
	}
	t = &tenantHistory{next: 1}
	h.tenants[tenant] = t
	return t
}

// Record adds the tools that a succeeded task used, by id. It does not wait: an entry may be lost.
func (h *History) Record(ctx context.Context, tenant, description string, ids []string) {
	data, err := json.Marshal(selection.NewPast(description, ids[:min(len(ids), historyTools)]))
	if err == nil {
		err = h.queue.AppendHistory(tenant, data)
	}
	if err != nil {
		h.log.DebugContext(ctx, "tool history not recorded", "tenant", tenant, "error", err)
	}
}
