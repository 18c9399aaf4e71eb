package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// statusHeader repeats a record's status in the headers of its message, so that an index needs no bodies.
const statusHeader = "Codefleet-Status"

// statusIndex lists the records of all tenants by status. It follows the headers of the records' stream, and takes
// about 100 bytes of memory per record.
type statusIndex struct {
	created time.Time // when the stream was created
	stop    func()

	mu       sync.Mutex
	seq      uint64        // sequence number of the last indexed message
	advanced chan struct{} // closed when seq changes; nil if nothing waits
	since    time.Time     // when a caller first missed a message after seq
	tenants  map[string]*tenantIndex
}

// tenantIndex is the index of one tenant's records.
type tenantIndex struct {
	newest map[taskKey]uint64 // the sequence of each record's latest message
	lists  map[schemas.Status][]indexEntry
	added  map[schemas.Status]int // entries added to a list since outdated ones were last removed
}

// taskKey is a decoded task id.
type taskKey [16]byte

// indexEntry is a message that gave a record a status. It is outdated if the record has a later message.
type indexEntry struct {
	task    taskKey
	seq     uint64
	expires int64 // when the server removes the record, in Unix seconds; 0 means never
}

// statusIndex returns the client's index of the records' stream, which was created at the time created. It builds the
// index on first use, and again if the stream was deleted and created again, because its sequences then restart.
func (c *Client) statusIndex(ctx context.Context, created time.Time) (*statusIndex, error) {
	c.indexing.Lock()
	defer c.indexing.Unlock()
	if c.index != nil && c.index.created.Equal(created) {
		return c.index, nil
	}
	if c.index != nil {
		c.index.stop()
		c.index = nil
	}
	x := &statusIndex{created: created, tenants: map[string]*tenantIndex{}}
	consumer, err := c.js.OrderedConsumer(ctx, streamRecords, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{recordPrefix + ">"}, DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("index records: %w", err)
	}
	consuming, err := consumer.Consume(x.add, jetstream.PullMaxMessages(indexPrefetch))
	if err != nil {
		return nil, fmt.Errorf("index records: %w", err)
	}
	x.stop = func() {
		consuming.Stop()
		<-consuming.Closed()
	}
	c.index = x
	return x, nil
}

const indexPrefetch = 5000 // headers of records that are requested at once

// dropIndex ends the client's index if that is x, or if x is nil. The next use builds a new one.
func (c *Client) dropIndex(x *statusIndex) {
	c.indexing.Lock()
	defer c.indexing.Unlock()
	if c.index != nil && (x == nil || x == c.index) {
		c.index.stop()
		c.index = nil
	}
}

// add indexes one message of the records' stream.
func (x *statusIndex) add(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	tenant, id, ok := cutLast(strings.TrimPrefix(m.Subject(), recordPrefix))
	raw, err := subjectEncoding.DecodeString(id)
	if !ok || err != nil || len(raw) != len(taskKey{}) {
		return
	}
	e := indexEntry{task: taskKey(raw), seq: meta.Sequence.Stream}
	if ttl, err := time.ParseDuration(m.Headers().Get(jetstream.MsgTTLHeader)); err == nil {
		e.expires = meta.Timestamp.Add(ttl).Unix()
	}
	status := schemas.Status(m.Headers().Get(statusHeader))
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.seq <= x.seq {
		return // delivered again after an interruption
	}
	t := x.tenants[tenant]
	if t == nil {
		t = &tenantIndex{
			newest: map[taskKey]uint64{}, lists: map[schemas.Status][]indexEntry{}, added: map[schemas.Status]int{},
		}
		x.tenants[strings.Clone(tenant)] = t
	}
	t.add(e, internStatus(status))
	x.seq = e.seq
	if x.advanced != nil {
		close(x.advanced)
		x.advanced = nil
	}
}

// internStatus returns an equal string that does not keep the message in memory. For a status that only another version
// of codefleet knows, it returns "".
func internStatus(s schemas.Status) schemas.Status {
	if i := slices.Index(statuses, s); i >= 0 {
		return statuses[i]
	}
	return ""
}

var statuses = []schemas.Status{
	schemas.Queued, schemas.Running, schemas.RetryWait, schemas.Succeeded, schemas.Failed, schemas.Blocked,
	schemas.Timeout, schemas.Cancelled, schemas.Expired, schemas.Dead,
}

func (t *tenantIndex) add(e indexEntry, status schemas.Status) {
	t.newest[e.task] = e.seq
	t.removeExpired()
	list := t.lists[status]
	t.added[status]++
	// Outdated entries are removed after so many additions that this takes a constant time per addition.
	if t.added[status] > 64+len(list)/2 {
		list = slices.DeleteFunc(slices.Clone(list), func(e indexEntry) bool { return t.newest[e.task] != e.seq })
		t.added[status] = 0
	}
	t.lists[status] = append(list, e)
}

// removeExpired removes outdated and expired entries from the beginning of each list. Records expire in the order in
// which they ended.
func (t *tenantIndex) removeExpired() {
	now := time.Now().Unix()
	for status, list := range t.lists {
		for len(list) > 0 {
			outdated := t.newest[list[0].task] != list[0].seq
			if !outdated {
				if list[0].expires == 0 || list[0].expires >= now {
					break
				}
				delete(t.newest, list[0].task)
			}
			list = list[1:]
		}
		t.lists[status] = list
	}
}

// latest returns up to limit records of a tenant, the latest first, that have one of the statuses, or a status that
// only another version of codefleet knows. Without statuses, all records are wanted.
func (x *statusIndex) latest(tenant string, wanted []schemas.Status, limit int) []indexEntry {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tenants[tenant]
	if t == nil {
		return nil
	}
	t.removeExpired()
	var all []indexEntry
	if len(wanted) == 0 {
		wanted = statuses
	}
	for _, status := range slices.Concat(wanted, []schemas.Status{""}) {
		n := 0
		for _, e := range slices.Backward(t.lists[status]) {
			if t.newest[e.task] == e.seq {
				all = append(all, e)
				if n++; n == limit {
					break
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b indexEntry) int { return cmp.Compare(b.seq, a.seq) })
	return all[:min(limit, len(all))]
}

// has reports whether the index has the message with sequence seq.
func (x *statusIndex) has(seq uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seq >= seq
}

// ErrIndexing says that the index of the records is not complete yet, so that tasks cannot be listed. Try again.
var ErrIndexing = errors.New("the index of the tasks is being built")

// indexSilence is how long callers wait for the next message before the index counts as stuck.
const indexSilence = 5 * time.Second

// isStuck reports whether a caller has missed a message, and none has arrived for indexSilence since: the consumer may
// have been lost.
func (x *statusIndex) isStuck() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.advanced != nil && time.Since(x.since) > indexSilence
}

// reach waits until the index has the message with sequence seq. If ctx ends before, the error wraps ErrIndexing.
func (x *statusIndex) reach(ctx context.Context, seq uint64) error {
	for {
		x.mu.Lock()
		if x.seq >= seq {
			x.mu.Unlock()
			return nil
		}
		if x.advanced == nil {
			x.advanced, x.since = make(chan struct{}), time.Now()
		}
		advanced := x.advanced
		x.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrIndexing, context.Cause(ctx))
		}
	}
}

// PrepareLists begins to build the index that List uses, so that the first List does not wait for it.
func (c *Client) PrepareLists(ctx context.Context) error {
	stream, err := c.js.Stream(ctx, streamRecords)
	if err == nil {
		_, err = c.statusIndex(ctx, stream.CachedInfo().Created)
	}
	return err
}

// listIndexed returns at most limit records of a tenant with one of the statuses, or with any if wanted is empty, the
// latest first. It takes into account every record that was written before the call.
func (c *Client) listIndexed(
	ctx context.Context, tenant string, wanted []schemas.Status, limit int,
) ([]schemas.Record, error) {
	stream, err := c.js.Stream(ctx, streamRecords)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	x, err := c.statusIndex(ctx, info.Created)
	if err != nil {
		return nil, err
	}
	// The search for the tenant's last message is slow. It is needed only if the index lacks the stream's last message.
	if !x.has(info.State.LastSeq) {
		last, err := stream.GetLastMsgForSubject(ctx, recordPrefix+tenant+".>")
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if err := x.reach(ctx, last.Sequence); err != nil {
			if x.isStuck() {
				c.dropIndex(x)
			}
			return nil, err
		}
	}
	for window := limit; ; window *= 2 {
		entries := x.latest(tenant, wanted, window)
		found, err := c.loadAll(ctx, tenant, entries, wanted, limit)
		if err != nil || len(found) == limit || len(entries) < window {
			return found, err
		}
	}
}

const loadBatch = 100 // records per request

// loadAll returns the records of entries that have one of the statuses, or all if wanted is empty, at most limit.
func (c *Client) loadAll(
	ctx context.Context, tenant string, entries []indexEntry, wanted []schemas.Status, limit int,
) (found []schemas.Record, err error) {
	for chunk := range slices.Chunk(entries, loadBatch) {
		records, err := c.loadMany(ctx, tenant, chunk)
		if err != nil {
			return nil, err
		}
		for _, e := range chunk {
			id := subjectEncoding.EncodeToString(e.task[:])
			r, ok := records[id]
			if (!ok || r.rev < e.seq) && c.clustered() { // from a replica that lags behind
				r, err = c.loadLeader(ctx, tenant, id)
				ok = err == nil
			}
			if err != nil && !errors.Is(err, ErrUnknownTask) {
				return nil, err
			}
			if ok && (len(wanted) == 0 || slices.Contains(wanted, r.Status)) && len(found) < limit {
				found = append(found, r.Record)
			}
		}
	}
	return found, nil
}

// loadMany reads the records of at most loadBatch entries with one request, by task id.
func (c *Client) loadMany(ctx context.Context, tenant string, entries []indexEntry) (map[string]storedRecord, error) {
	subjects := make([]string, len(entries))
	for i, e := range entries {
		subjects[i] = recordSubject(tenant, subjectEncoding.EncodeToString(e.task[:]))
	}
	records := make(map[string]storedRecord, len(entries))
	_, _, err := c.directGet(ctx, streamRecords, map[string]any{"multi_last": subjects},
		func(m *nats.Msg, seq uint64) error {
			_, id, _ := cutLast(m.Header.Get(jetstream.SubjectHeader))
			r, err := decodeRecord(id, seq, m.Data)
			records[id] = r
			return err
		})
	return records, err
}
