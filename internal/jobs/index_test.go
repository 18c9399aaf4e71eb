package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/codefleet/codefleet/schemas"
)

func (f *fleet) listed(t *testing.T, o ListOptions) (ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	all, err := f.List(ctx, "acme", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		ids = append(ids, r.TaskID)
	}
	return ids
}

// A list reads the records that it returns, and not all records.
func TestListIsIndexed(t *testing.T) {
	f := newFleet(t)
	const records = 2000
	for i := range records {
		r := schemas.Record{
			TaskID: TaskID("acme", "/test", strconv.Itoa(i)), Tenant: "acme", Status: schemas.Succeeded,
			SubmittedAt: time.Unix(int64(i), 0),
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		msg := &nats.Msg{
			Subject: recordSubject("acme", r.TaskID), Data: data, Header: nats.Header{statusHeader: {string(r.Status)}},
		}
		if _, err := f.js.PublishMsgAsync(msg); err != nil {
			t.Fatal(err)
		}
	}
	<-f.js.PublishAsyncComplete()
	failed := ListOptions{Status: []schemas.Status{schemas.Failed, schemas.Dead}}
	if got := f.listed(t, failed); len(got) > 0 {
		t.Errorf("List failed = %v, want none", got)
	}
	before := f.nc.Stats().InMsgs
	if got := f.listed(t, failed); len(got) > 0 {
		t.Errorf("List failed = %v, want none", got)
	}
	got := f.listed(t, ListOptions{Status: []schemas.Status{schemas.Succeeded}, Limit: 3})
	want := []string{TaskID("acme", "/test", "1999"), TaskID("acme", "/test", "1998"), TaskID("acme", "/test", "1997")}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("List succeeded (-want +got):\n%s", d)
	}
	if got := f.listed(t, ListOptions{Limit: 3}); cmp.Diff(want, got) != "" {
		t.Errorf("List = %v, want %v", got, want)
	}
	if n := f.nc.Stats().InMsgs - before; n > 50 {
		t.Errorf("three lists read %d messages, want at most 50", n)
	}
}

// A list by status includes every write before it, those of other clients too, and records without the header.
func TestListByStatusIsCurrent(t *testing.T) {
	f := newFleet(t)
	other := connect(t, f.opts)
	queued := ListOptions{Status: []schemas.Status{schemas.Queued}}
	for i := range 20 {
		rec, err := other.Submit(t.Context(), "acme", taskEvent(strconv.Itoa(i), `{"code":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{rec.TaskID}, f.listed(t, queued)); d != "" {
			t.Fatalf("List queued after Submit (-want +got):\n%s", d)
		}
		if _, err := other.Cancel(t.Context(), "acme", rec.TaskID); err != nil {
			t.Fatal(err)
		}
		if got := f.listed(t, queued); len(got) > 0 {
			t.Fatalf("List queued after Cancel = %v, want none", got)
		}
	}
	old := schemas.Record{TaskID: TaskID("acme", "/test", "old"), Tenant: "acme", Status: schemas.Dead}
	data, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, recordSubject("acme", old.TaskID), nil, string(data))
	if d := cmp.Diff([]string{old.TaskID}, f.listed(t, ListOptions{Status: []schemas.Status{schemas.Dead}})); d != "" {
		t.Errorf("List dead with a record without a header (-want +got):\n%s", d)
	}
	if got := f.listed(t, ListOptions{Status: []schemas.Status{schemas.Cancelled}, Limit: 30}); len(got) != 20 {
		t.Errorf("List cancelled = %d tasks, want 20", len(got))
	}
}

// After a restart of the server, which may have lost its disk, the sequences may begin again.
func TestListByStatusAfterLossOfTheStream(t *testing.T) {
	f := newFleet(t)
	queued := ListOptions{Status: []schemas.Status{schemas.Queued}}
	for i := range 3 {
		f.submit(t, strconv.Itoa(i), `{"code":"x"}`)
	}
	if got := f.listed(t, queued); len(got) != 3 {
		t.Fatalf("List queued = %v, want 3 tasks", got)
	}
	if err := f.js.DeleteStream(t.Context(), streamRecords); err != nil {
		t.Fatal(err)
	}
	provision(t, f.Client)
	rec := f.submit(t, "new", `{"code":"x"}`)
	if d := cmp.Diff([]string{rec.TaskID}, f.listed(t, queued)); d != "" {
		t.Errorf("List queued (-want +got):\n%s", d)
	}
}

// An index that is being built outlives lists that end before it is complete, so that a later list finds more of it.
// Only an index that is stuck is built again.
func TestListWhileTheIndexIsBuilt(t *testing.T) {
	f := newFleet(t)
	f.submit(t, "1", `{"code":"x"}`)
	if got := f.listed(t, ListOptions{}); len(got) != 1 {
		t.Fatalf("List = %v, want one task", got)
	}
	f.index.stop() // as slow as possible
	f.submit(t, "2", `{"code":"x"}`)
	before := f.index
	list := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := f.List(ctx, "acme", ListOptions{})
		return err
	}
	for range 2 {
		if err := list(); !errors.Is(err, ErrIndexing) || f.index != before {
			t.Errorf("List = %v, want %v, and that the index is kept", err, ErrIndexing)
		}
	}
	before.mu.Lock()
	before.since = before.since.Add(-indexSilence)
	before.mu.Unlock()
	if err := list(); !errors.Is(err, ErrIndexing) {
		t.Errorf("List with an index that is stuck = %v, want %v", err, ErrIndexing)
	}
	if got := f.listed(t, ListOptions{}); len(got) != 2 {
		t.Errorf("List with a new index = %v, want two tasks", got)
	}
}

// The index agrees with a map of records, whatever the order of changes, and forgets expired ones.
func TestIndexModel(t *testing.T) {
	now := time.Now().Unix()
	rapid.Check(t, func(t *rapid.T) {
		x := &tenantIndex{
			newest: map[taskKey]uint64{}, lists: map[schemas.Status][]indexEntry{}, added: map[schemas.Status]int{},
		}
		index := &statusIndex{tenants: map[string]*tenantIndex{"a": x}}
		model := map[taskKey]schemas.Status{}
		for seq := range uint64(rapid.IntRange(1, 400).Draw(t, "messages")) {
			key := taskKey{byte(rapid.IntRange(0, 40).Draw(t, "task"))}
			status := rapid.SampledFrom(statuses).Draw(t, "status")
			x.add(indexEntry{task: key, seq: seq + 1}, status)
			model[key] = status
		}
		for _, status := range statuses {
			want := 0
			for _, s := range model {
				if s == status {
					want++
				}
			}
			got := index.latest("a", []schemas.Status{status}, 100)
			if len(got) != want {
				t.Fatalf("latest(%s) = %d records, want %d", status, len(got), want)
			}
		}
	})
	x := &tenantIndex{
		newest: map[taskKey]uint64{}, lists: map[schemas.Status][]indexEntry{}, added: map[schemas.Status]int{},
	}
	for i := range 1000 { // each of them expires before the next is added
		x.add(indexEntry{task: taskKey{byte(i), byte(i >> 8)}, seq: uint64(i + 1), expires: now - 10}, schemas.Dead)
	}
	if len(x.newest) > 2 || len(x.lists[schemas.Dead]) > 2 {
		t.Errorf("the index keeps %d records and %d entries, want at most 2 of each",
			len(x.newest), len(x.lists[schemas.Dead]))
	}
}

// Expired records are forgotten, although no further record gets their status.
func TestIndexForgetsExpiredRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &tenantIndex{
			newest: map[taskKey]uint64{}, lists: map[schemas.Status][]indexEntry{}, added: map[schemas.Status]int{},
		}
		expires := time.Now().Add(time.Minute).Unix()
		for i := range uint64(100) {
			x.add(indexEntry{task: taskKey{byte(i)}, seq: i + 1, expires: expires}, schemas.Failed)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time, of synctest
		x.add(indexEntry{task: taskKey{200}, seq: 200}, schemas.Queued)
		if len(x.newest) != 1 || len(x.lists[schemas.Failed]) > 0 {
			t.Errorf("the index keeps %d records and %d failed ones, want 1 and none",
				len(x.newest), len(x.lists[schemas.Failed]))
		}
	})
}

// A caller that waits takes little memory, although nats.go allocates the queue of a subscription in advance.
func TestMemoryOfWaiters(t *testing.T) {
	f := newFleet(t)
	id := f.submit(t, "1", `{"code":"x"}`).TaskID
	const callers, limit = 200, 100 << 10
	before, subscriptions := heap(), f.nc.NumSubscriptions()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range callers {
		waiting.Go(func() {
			if _, err := f.Wait(ctx, "acme", id); !errors.Is(err, context.Canceled) {
				t.Errorf("Wait = %v, want %v", err, context.Canceled)
			}
		})
	}
	eventually(t, "subscriptions", func() error {
		if n := f.nc.NumSubscriptions() - subscriptions; n < callers {
			return fmt.Errorf("%d subscriptions, want %d", n, callers)
		}
		return nil
	})
	if each := (heap() - before) / callers; each > limit {
		t.Errorf("a waiting caller takes %d bytes; the limit is %d", each, limit)
	}
	cancel()
	waiting.Wait()
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
