package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/schemas"
)

// record runs RecordTasks on a connection of its own until the test ends, and returns the connection.
func (f *fleet) record(t *testing.T) *Client {
	t.Helper()
	c := connect(t, f.opts)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { c.RecordTasks(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// publishTask publishes a task as a foreign producer does, and returns its id.
func (f *fleet) publishTask(t testing.TB, lane, id string) string {
	t.Helper()
	h, data, err := encodeNATS(taskEvent(id, `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, "tasks."+lane+".acme", h, string(data))
	return TaskID("acme", "/test", id)
}

func (f *fleet) awaitRecord(t testing.TB, id string) (rec schemas.Record) {
	t.Helper()
	eventually(t, "record", func() (err error) {
		rec, err = f.Record(t.Context(), "acme", id)
		return err
	})
	return rec
}

// A task that was published without Submit is visible within a second, before a worker claims it.
func TestRecordTasks(t *testing.T) {
	f := newFleet(t)
	early := f.publishTask(t, "default.normal", "early") // before there is any process of the fleet
	f.record(t)
	f.awaitRecord(t, early)
	began, endLag := time.Now(), faulttest.MeasureLag()
	id := f.publishTask(t, "gpu.low", "1")
	rec := f.awaitRecord(t, id)
	if took := time.Since(began) - endLag(); took > time.Second {
		t.Errorf("the record appeared after %v, want at most 1s", took)
	}
	if rec.Status != schemas.Queued || rec.Pool != "gpu" || rec.Priority != "low" {
		t.Errorf("record = %+v, want queued with pool gpu and priority low", rec)
	}
	if list, err := f.List(t.Context(), "acme", ListOptions{}); err != nil || len(list) != 2 {
		t.Errorf("List = %+v, %v, want both tasks", list, err)
	}
	if rec, err := f.Cancel(t.Context(), "acme", id); err != nil || rec.Status != schemas.Cancelled {
		t.Errorf("Cancel = %+v, %v, want cancelled", rec, err)
	}
	f.work(t, WorkerOptions{Pools: []string{"default", "gpu"}, Handler: succeed})
	if rec := f.await(t, early); rec.Status != schemas.Succeeded {
		t.Errorf("task after the start of a worker = %+v, want succeeded", rec)
	}
	f.awaitEmpty(t)
}

// RecordTasks does not fetch the data of tasks that have a record.
func TestRecordTasksFetchesLittle(t *testing.T) {
	f := newFleet(t)
	const size = 1 << 20
	f.submit(t, "1", `{"code":"`+strings.Repeat("x", size)+`"}`)
	c := f.record(t)
	kv, err := f.js.KeyValue(t.Context(), bucketCursors)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{c: f.Client, kv: kv}
	eventually(t, "the cursor", func() error {
		at, _, err := r.read(t.Context())
		if err == nil && at.Seq == 0 {
			err = errors.New("no task is recorded")
		}
		return err
	})
	if n := c.nc.Stats().InBytes; n > size/2 {
		t.Errorf("RecordTasks received %d bytes, want at most half of the data", n)
	}
}

// A worker creates the records of tasks of all pools, while it is busy too.
func TestWorkerRecordsTasks(t *testing.T) {
	f := newFleet(t)
	release := make(chan struct{})
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		<-release
		return succeed(ctx, j)
	}})
	ids := []string{
		f.publishTask(t, "default.normal", "1"), f.publishTask(t, "default.normal", "2"),
		f.publishTask(t, "other.normal", "3"),
	}
	for _, id := range ids {
		f.awaitRecord(t, id)
	}
	close(release)
	f.await(t, ids[0])
	f.await(t, ids[1])
}

// Many processes write each record once. A process that was killed during its turn does not keep the turn.
func TestRecordTasksInTurns(t *testing.T) {
	f := newFleet(t)
	kv, err := f.js.KeyValue(t.Context(), bucketCursors)
	if err == nil {
		_, err = kv.Put(t.Context(), cursorRecorded, []byte(`{"seq":0,"busy":true}`)) // by a killed process
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.record(t)
	}
	const tasks = 1000
	for i := range tasks {
		f.publishTask(t, "default.normal", strconv.Itoa(i))
	}
	stream, err := f.js.Stream(t.Context(), streamRecords)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "records", func() error {
		info, err := stream.Info(t.Context())
		if err == nil && info.State.Msgs != tasks {
			err = fmt.Errorf("there are %d, want %d", info.State.Msgs, tasks)
		}
		return err
	})
	if info := stream.CachedInfo(); info.State.LastSeq != tasks {
		t.Errorf("%d writes for %d records, want one each", info.State.LastSeq, tasks)
	}
	eventually(t, "cursor", func() error {
		e, err := kv.Get(t.Context(), cursorRecorded)
		if err == nil && string(e.Value()) != fmt.Sprintf(`{"seq":%d,"busy":false}`, tasks) {
			err = errors.New(string(e.Value()))
		}
		return err
	})
}

// A stream of tasks that was created again begins with sequence 1.
func TestRecordTasksOfNewStream(t *testing.T) {
	f := newFleet(t)
	kv, err := f.js.KeyValue(t.Context(), bucketCursors)
	if err == nil {
		_, err = kv.Put(t.Context(), cursorRecorded, []byte(`{"seq":1000}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	f.record(t)
	f.awaitRecord(t, f.publishTask(t, "default.normal", "1"))
}

// After a restart of the server, which may have lost its disk, the sequences may begin again.
func TestRecordTasksAfterLossOfTheStream(t *testing.T) {
	f := newFleet(t)
	c := f.record(t)
	for i := range 3 {
		f.awaitRecord(t, f.publishTask(t, "default.normal", strconv.Itoa(i)))
	}
	if err := f.js.DeleteStream(t.Context(), streamTasks); err != nil {
		t.Fatal(err)
	}
	provision(t, f.Client)
	if err := c.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	f.awaitRecord(t, f.publishTask(t, "default.normal", "new"))
}

// Messages that are not tasks get no record, and do not delay those behind them.
func TestRecordTasksSkipsOthers(t *testing.T) {
	f := newFleet(t)
	f.record(t)
	f.publish(t, "tasks.default.normal.acme", nats.Header{}, "not an event")
	f.publish(t, "tasks.default.unknown.acme", nats.Header{}, "no such priority")
	h, data, err := encodeNATS(taskEvent("refused", `{"code":1}`))
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, "tasks.default.normal.acme", h, string(data))
	f.awaitRecord(t, f.publishTask(t, "default.normal", "1"))
	f.awaitRecord(t, TaskID("acme", "/test", "refused"))
	stream, err := f.js.Stream(t.Context(), streamRecords)
	if err != nil || stream.CachedInfo().State.Msgs != 2 {
		t.Errorf("records = %+v, %v, want 2", stream, err)
	}
	f.work(t, WorkerOptions{Handler: succeed})
	if rec := f.await(t, TaskID("acme", "/test", "refused")); rec.Status != schemas.Blocked {
		t.Errorf("refused task = %+v, want blocked", rec)
	}
	f.awaitEmpty(t)
}

// TestTimesThatNoRecordHolds publishes tasks with times outside of the years of RFC 3339. Each is refused, and has a
// record.
func TestTimesThatNoRecordHolds(t *testing.T) {
	f := newFleet(t)
	f.record(t)
	var ids []string
	for _, at := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"} {
		for path, ev := range map[string]event.Event{
			"expirytime":        taskEvent("expires"+at, `{"code":"x"}`, "expirytime", at),
			"/not_before":       taskEvent("begins"+at, `{"code":"x","not_before":"`+at+`"}`),
			"/limits/memory_mb": taskEvent("number"+at, `{"code":"x","not_before":"`+at+`","limits":{"memory_mb":1e300}}`),
		} {
			_, err := f.Submit(t.Context(), "acme", ev)
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Path != path {
				t.Errorf("Submit of %s = %v, want it refused at %s", ev.ID(), err, path)
			}
			h, data, err := encodeNATS(ev)
			if err != nil {
				t.Fatal(err)
			}
			f.publish(t, "tasks.default.normal.acme", h, string(data))
			ids = append(ids, TaskID("acme", ev.Source(), ev.ID()))
		}
	}
	f.awaitRecord(t, f.publishTask(t, "default.normal", "last"))
	f.work(t, WorkerOptions{Handler: succeed})
	for _, id := range ids {
		if rec := f.await(t, id); rec.Status != schemas.Blocked {
			t.Errorf("record = %+v, want blocked", rec)
		}
	}
	f.awaitEmpty(t)
}

// TestUnencodableRecord checks that a record that cannot be written is told from an outage.
func TestUnencodableRecord(t *testing.T) {
	f := newFleet(t)
	rec := storedRecord{Record: schemas.Record{
		Tenant: "acme", TaskID: TaskID("acme", "/test", "1"), NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
	}}
	if err := f.swap(t.Context(), &rec); !isUnstorable(err) || errors.Is(err, errAmbiguous) {
		t.Errorf("swap = %v, want an error that says that the record cannot be stored", err)
	}
}

// A read continues after the server has ended a batch at its limit of bytes.
func TestReadsLargeMessages(t *testing.T) {
	f := newFleet(t)
	const n = 100
	large := string(make([]byte, 900<<10))
	for range n {
		f.publish(t, "tasks.default.normal.acme", nats.Header{}, large)
	}
	got := 0
	err := f.readFrom(t.Context(), streamTasks, "tasks.>", 1, func(m *nats.Msg) error {
		if m.Header.Get(jetstream.SequenceHeader) != "" {
			got++
		}
		return nil
	})
	if err != nil || got != n {
		t.Errorf("read %d messages, %v, want %d", got, err, n)
	}
}

// TestLastOn checks that one request finds a message on a subject with wildcards, however many tasks are queued on the
// lanes that match it, and that the message is found if too many lanes match for such a request.
func TestLastOn(t *testing.T) {
	f := newFleet(t)
	const stray = "tasks.*.*.acme"
	f.publish(t, stray, nil, "stray")
	for range 2 * readBatch {
		f.publish(t, "tasks.default.normal.acme", nil, "")
	}
	before := f.nc.Stats().OutMsgs
	m, seq, err := f.lastOn(t.Context(), stray)
	if err != nil || seq != 1 || string(m.Data) != "stray" {
		t.Errorf("lastOn = %v, %d, %v, want the first message", m, seq, err)
	}
	if n := f.nc.Stats().OutMsgs - before; n != 1 {
		t.Errorf("lastOn has sent %d requests, want 1", n)
	}
	if m, _, err := f.lastOn(t.Context(), "tasks.*.high.acme"); err != nil || m != nil {
		t.Errorf("lastOn of a subject without messages = %v, %v, want none", m, err)
	}
	for i := range 1024 {
		f.publish(t, fmt.Sprintf("tasks.p%d.normal.acme", i), nil, "")
	}
	if m, seq, err = f.lastOn(t.Context(), stray); err != nil || seq != 1 || string(m.Data) != "stray" {
		t.Errorf("lastOn with 1025 lanes = %v, %d, %v, want the first message", m, seq, err)
	}
	if m, _, err := f.lastOn(t.Context(), "tasks.*.normal.*"); err != nil || m != nil {
		t.Errorf("lastOn of a subject without messages, with 1025 lanes = %v, %v, want none", m, err)
	}
}

// A server that is restarted loses the bucket of workers, which is in memory. Workers create it again.
func TestPresenceAfterRestart(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Name: "w", Handler: succeed})
	present := func() error {
		workers, err := f.Workers(t.Context())
		if err == nil && len(workers) != 1 {
			err = fmt.Errorf("workers = %+v, want one", workers)
		}
		return err
	}
	eventually(t, "worker", present)
	if err := f.js.DeleteKeyValue(t.Context(), bucketWorkers); err != nil {
		t.Fatal(err)
	}
	if workers, err := f.Workers(t.Context()); err != nil || len(workers) > 0 {
		t.Errorf("Workers without a bucket = %+v, %v, want none", workers, err)
	}
	eventually(t, "worker after the restart", present)
}

// TestForeignServerHeaders checks that headers which a producer sets do not count as the server's: they neither make a
// record in another tenant nor keep later tasks from getting one.
func TestForeignServerHeaders(t *testing.T) {
	f := newFleet(t)
	h, data, err := encodeNATS(taskEvent("1", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	h.Set("Nats-Subject", "tasks.default.normal.other")
	h.Set("Nats-Sequence", "18446744073709551615")
	h.Set("Nats-Num-Pending", "0")
	f.publish(t, "tasks.default.normal.acme", h, string(data))
	for _, status := range []string{"404", "503"} {
		f.publish(t, "tasks.default.normal.acme", nats.Header{"Status": {status}}, "")
	}
	last := f.publishTask(t, "default.normal", "last")
	f.record(t)
	f.awaitRecord(t, last)
	f.awaitRecord(t, TaskID("acme", "/test", "1"))
	if rec, err := f.Record(t.Context(), "other", TaskID("other", "/test", "1")); !errors.Is(err, ErrUnknownTask) {
		t.Errorf("the other tenant has the record %+v, %v, want none", rec, err)
	}
	f.publish(t, "tasks.default.normal.acme", h, string(data)) // while tasks are recorded
	f.awaitRecord(t, f.publishTask(t, "default.normal", "later"))
}

// TestForeignServerHeadersInQueue checks that headers which a producer sets do not count as the server's when a queued
// task is cancelled and when its submission is read.
func TestForeignServerHeadersInQueue(t *testing.T) {
	f := newFleet(t)
	f.record(t)
	h, data, err := encodeNATS(taskEvent("1", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	h.Set("Nats-Sequence", "x")
	h.Set("Nats-Time-Stamp", "x")
	f.publish(t, "tasks.default.normal.acme", h, string(data))
	id := TaskID("acme", "/test", "1")
	f.awaitRecord(t, id)
	if _, ev, err := f.Submitted(t.Context(), "acme", id); err != nil || string(ev.Data()) != string(data) {
		t.Errorf("Submitted = %v, %v, want the event", ev, err)
	}
	if rec, err := f.Cancel(t.Context(), "acme", id); err != nil || rec.Status != schemas.Cancelled {
		t.Errorf("Cancel = %s, %v, want a cancelled task", rec.Status, err)
	}
	f.publish(t, "tasks.default.normal.acme", nats.Header{"Status": {"404"}}, "")
	if m, err := f.getMsg(t.Context(), streamTasks, 1); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("getMsg of the cancelled task's message = %v, %v, want none", m, err)
	}
	if m, err := f.getMsg(t.Context(), streamTasks, 2); err != nil || m.Sequence != 2 || len(m.Data) != 0 {
		t.Errorf("getMsg of a message with the header Status = %v, %v, want the message", m, err)
	}
}
