package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// tally counts what each tenant's tasks use, by UTC day. Workers add up their counts in memory and add them to counters
// in the queue every tallyEvery, so that a task costs no further write. A worker that is killed loses the counts of the
// last interval.
type tally struct {
	mu     sync.Mutex
	counts map[string]int // by subject
}

const tallyEvery = 5 * time.Second

// What is counted.
const (
	tallyTasks     = "tasks"      // runs that ended their task
	tallyBox       = "box_ms"     // milliseconds of runs, including those that were repeated
	tallyTokens    = "tokens"     // of models
	tallyBytesIn   = "bytes_in"   // data of tasks
	tallyBytesOut  = "bytes_out"  // output, results and artifacts
	tallyBytesSent = "bytes_sent" // of the programs' connections
)

func usageSubject(tenant string, day time.Time, what string) string {
	return "usage." + tenant + "." + day.UTC().Format(tallyDay) + "." + what
}

const tallyDay = "20060102"

func (t *tally) add(tenant, what string, n int) {
	if n == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[usageSubject(tenant, time.Now(), what)] += n
}

// countRun counts a run that has ended. result is nil unless the run ended the task.
func (t *tally) countRun(tenant string, took time.Duration, data int, result *schemas.Result) {
	t.add(tenant, tallyBox, int(took.Milliseconds()))
	if result == nil {
		return
	}
	t.add(tenant, tallyTasks, 1)
	t.add(tenant, tallyBytesIn, data)
	out := len(result.Output) + len(result.Stderr) + len(result.Result)
	for _, a := range result.Artifacts {
		out += int(a.Bytes)
	}
	t.add(tenant, tallyBytesOut, out)
	sent := 0
	for _, e := range result.Egress {
		sent += int(e.Bytes)
	}
	t.add(tenant, tallyBytesSent, sent)
	if u := result.Usage; u != nil {
		t.add(tenant, tallyTokens, u.PromptTokens+u.CompletionTokens)
	}
}

// flush adds the counts to the counters in the queue. Counts that could not be added are kept.
func (t *tally) flush(ctx context.Context, c *Client) error {
	t.mu.Lock()
	counts := t.counts
	t.counts = nil
	t.mu.Unlock()
	for subject, n := range counts {
		if _, err := c.addTo(ctx, subject, n); err != nil {
			t.mu.Lock()
			if t.counts == nil {
				t.counts = map[string]int{}
			}
			for subject, n := range counts {
				t.counts[subject] += n
			}
			t.mu.Unlock()
			return fmt.Errorf("count usage: %w", err)
		}
		delete(counts, subject)
	}
	return nil
}

// keepTally flushes the tally at intervals until ctx ends, and then once more.
func (w *Worker) keepTally(ctx, late context.Context) {
	every := time.NewTicker(tallyEvery)
	defer every.Stop()
	out := outage{log: w.log, failed: "usage not counted", again: "usage counted again"}
	for {
		select {
		case <-every.C:
			out.report(ctx, w.tally.flush(ctx, w.c))
		case <-ctx.Done():
			ctx, cancel := settling(ctx, late, time.Second)
			defer cancel()
			w.logError(ctx, "usage not counted", w.tally.flush(ctx, w.c))
			return
		}
	}
}

// Usage returns what the tasks of tenants used, by tenant and UTC day, from a day to another, sorted. An empty tenant
// selects all tenants.
func (c *Client) Usage(ctx context.Context, tenant string, from, to time.Time) ([]schemas.TenantUsage, error) {
	filter := "usage.*.*.*"
	if tenant != "" {
		if err := c.checkTenant("tenant", tenant); err != nil {
			return nil, err
		}
		filter = "usage." + tenant + ".*.*"
	}
	first, last := from.UTC().Format(tallyDay), to.UTC().Format(tallyDay)
	found := map[[2]string]*schemas.TenantUsage{}
	err := c.readFrom(ctx, streamSpent, filter, 1, func(m *nats.Msg) error {
		parts := strings.Split(m.Header.Get(jetstream.SubjectHeader), ".")
		if len(parts) != 4 || parts[2] < first || parts[2] > last {
			return nil
		}
		key := [2]string{parts[1], parts[2]}
		if found[key] == nil {
			day := parts[2]
			found[key] = &schemas.TenantUsage{Tenant: parts[1], Day: day[:4] + "-" + day[4:6] + "-" + day[6:]}
		}
		n, err := parseCounter(m.Data)
		setUsage(found[key], parts[3], n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	all := make([]schemas.TenantUsage, 0, len(found))
	for _, u := range found {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b schemas.TenantUsage) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Day, b.Day))
	})
	return all, nil
}

func setUsage(u *schemas.TenantUsage, what string, n int) {
	switch what {
	case tallyTasks:
		u.Tasks = n
	case tallyBox:
		u.BoxSeconds, _ = strconv.ParseFloat(fmt.Sprintf("%.3f", float64(n)/1000), 64)
	case tallyTokens:
		u.Tokens = n
	case tallyBytesIn:
		u.BytesIn = n
	case tallyBytesOut:
		u.BytesOut = n
	case tallyBytesSent:
		u.NetworkBytes = n
	}
}
