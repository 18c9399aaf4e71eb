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
// last interval; a count whose confirmation was lost is added again.
type tally struct {
	mu     sync.Mutex
	counts map[tallyKey]*tallyCounts
}

type tallyKey struct {
	tenant string
	day    int64 // days since 1970, in UTC
}

// tallyCounts are the counts of a tenant and day, by index: countTasks and so on.
type tallyCounts [countWaits + len(waitBounds)]int

const tallyEvery = 5 * time.Second

// What is counted: the last parts of the counters' subjects.
const (
	tallyTasks     = "tasks"      // runs that ended their task
	tallyBox       = "box_ms"     // milliseconds of runs, including those that were repeated
	tallyTokens    = "tokens"     // models' tokens
	tallyBytesIn   = "bytes_in"   // data of tasks
	tallyBytesOut  = "bytes_out"  // output, results and artifacts
	tallyBytesSent = "bytes_sent" // bytes of the programs' connections
	tallyWait      = "wait_"      // tasks by how long they were queued; followed by the index in waitBounds
)

// tallyNames are the names of what tallyCounts counts, by index, without the waits.
var tallyNames = [...]string{tallyTasks, tallyBox, tallyTokens, tallyBytesIn, tallyBytesOut, tallyBytesSent}

const (
	countTasks = iota
	countBox
	countTokens
	countBytesIn
	countBytesOut
	countBytesSent
	countWaits // followed by the other waits
)

// waitBounds are the upper bounds of the waits that are counted together. The last count has no bound.
var waitBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
	20 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour,
}

// tallyName returns the name of a count.
func tallyName(what int) string {
	if what < countWaits {
		return tallyNames[what]
	}
	return tallyWait + strconv.Itoa(what-countWaits)
}

// waitQuantile returns the p-quantile of the waits, in seconds. It assumes that the waits between two bounds are evenly
// distributed.
func waitQuantile(counts *[len(waitBounds)]int, p float64) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	rank, low := p*float64(total), time.Duration(0)
	for i, n := range counts {
		if n > 0 && float64(n) >= rank {
			return (low + time.Duration(rank/float64(n)*float64(waitBounds[i]-low))).Seconds()
		}
		rank, low = rank-float64(n), waitBounds[i]
	}
	return 0
}

const (
	tallyLayout   = "20060102"
	secondsPerDay = 24 * 60 * 60
)

func usageSubject(tenant string, day time.Time, what string) string {
	return "usage." + tenant + "." + day.UTC().Format(tallyLayout) + "." + what
}

func (t *tally) add(key tallyKey, counts *tallyCounts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, ok := t.counts[key]
	if !ok {
		if t.counts == nil {
			t.counts = map[tallyKey]*tallyCounts{}
		}
		sum = &tallyCounts{}
		t.counts[key] = sum
	}
	for what, n := range counts {
		sum[what] += n
	}
}

// countRun counts a run that has ended. result is nil unless the run ended the task.
func (t *tally) countRun(tenant string, took time.Duration, data int, result *schemas.Result) {
	counts := tallyCounts{countBox: int(took.Milliseconds())}
	if result != nil {
		counts[countTasks], counts[countBytesIn] = 1, data
		counts[countBytesOut] = len(result.Output) + len(result.Stderr) + len(result.Result)
		for _, a := range result.Artifacts {
			counts[countBytesOut] += int(a.Bytes)
		}
		for _, e := range result.Egress {
			counts[countBytesSent] += int(e.Bytes)
		}
	}
	t.add(tallyKey{tenant, time.Now().Unix() / secondsPerDay}, &counts)
}

// countTokens counts models' tokens.
func (t *tally) countTokens(tenant string, tokens int) {
	t.add(tallyKey{tenant, time.Now().Unix() / secondsPerDay}, &tallyCounts{countTokens: tokens})
}

// countWait counts how long a task was queued before its first run.
func (t *tally) countWait(tenant string, wait time.Duration) {
	i := slices.IndexFunc(waitBounds[:len(waitBounds)-1], func(bound time.Duration) bool { return wait <= bound })
	if i < 0 {
		i = len(waitBounds) - 1
	}
	var counts tallyCounts
	counts[countWaits+i] = 1
	t.add(tallyKey{tenant, time.Now().Unix() / secondsPerDay}, &counts)
}

// flush adds the counts to the counters in the queue. Counts that could not be added are kept.
func (t *tally) flush(ctx context.Context, c *Client) error {
	t.mu.Lock()
	counts := t.counts
	t.counts = nil
	t.mu.Unlock()
	var failed error
	for key, sum := range counts {
		day := time.Unix(key.day*secondsPerDay, 0)
		for what, n := range sum {
			if n == 0 || failed != nil {
				continue
			}
			if _, failed = c.addTo(ctx, usageSubject(key.tenant, day, tallyName(what)), n); failed == nil {
				sum[what] = 0
			}
		}
		if failed != nil {
			t.add(key, sum)
		}
	}
	if failed != nil {
		return fmt.Errorf("count usage: %w", failed)
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
			ctx, cancel := detached(ctx, late, time.Second)
			defer cancel()
			w.logError(ctx, "usage not counted", w.tally.flush(ctx, w.c))
			return
		}
	}
}

// Usage returns what the tasks of tenants used, by tenant and UTC day, between two days inclusive, sorted. An empty
// tenant selects all tenants.
func (c *Client) Usage(ctx context.Context, tenant string, from, to time.Time) ([]schemas.TenantUsage, error) {
	filter := "usage.*.*.*"
	if tenant != "" {
		if err := c.checkTenant(ctx, "tenant", tenant); err != nil {
			return nil, err
		}
		filter = "usage." + tenant + ".*.*"
	}
	first, last := from.UTC().Format(tallyLayout), to.UTC().Format(tallyLayout)
	type counted struct {
		schemas.TenantUsage
		waits [len(waitBounds)]int
	}
	found := map[[2]string]*counted{}
	err := c.readFrom(ctx, streamSpent, filter, 1, func(m *nats.Msg) error {
		parts := strings.Split(m.Header.Get(jetstream.SubjectHeader), ".")
		if len(parts) != 4 || parts[2] < first || parts[2] > last {
			return nil
		}
		key := [2]string{parts[1], parts[2]}
		if found[key] == nil {
			day := parts[2]
			found[key] = &counted{TenantUsage: schemas.TenantUsage{
				Tenant: parts[1], Day: day[:4] + "-" + day[4:6] + "-" + day[6:],
			}}
		}
		n, err := parseCounter(m.Data)
		setUsage(&found[key].TenantUsage, parts[3], n)
		if text, ok := strings.CutPrefix(parts[3], tallyWait); ok {
			if i, err := strconv.Atoi(text); err == nil && i >= 0 && i < len(waitBounds) {
				found[key].waits[i] = n
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	all := make([]schemas.TenantUsage, 0, len(found))
	for _, u := range found {
		u.WaitP50S, u.WaitP99S = waitQuantile(&u.waits, 0.5), waitQuantile(&u.waits, 0.99)
		all = append(all, u.TenantUsage)
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
		u.BoxSeconds = float64(n) / 1000
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
