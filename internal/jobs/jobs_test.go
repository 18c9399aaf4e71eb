package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/schemas"
)

// fleet is a server with its streams and a client, for one test.
type fleet struct {
	*Client
	srv  *embedded.NATS
	opts Options
}

var noLog = slog.New(slog.DiscardHandler)

// maxStoreBytes is how much a server may store. By default, a host with little free disk space could not store the logs
// twice, as Provision does while it copies them.
const maxStoreBytes = 16 << 30

// hangTime is how long a test waits for something before it fails.
const hangTime = time.Minute

func newFleet(t testing.TB, change ...func(*Options)) *fleet {
	t.Helper()
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
		Dir: t.TempDir(), Log: noLog, Tenants: map[string]embedded.NATSUser{"acme": {User: "acme", Password: "a"}},
		MaxStoreBytes: maxStoreBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	opts := Options{
		Server:      Server{InProcess: srv},
		Credentials: Credentials{User: srv.Fleet().User, Password: srv.Fleet().Password},
		AckWait:     10 * time.Second, Log: noLog,
	}
	for _, f := range change {
		f(&opts)
	}
	f := &fleet{srv: srv, opts: opts, Client: connect(t, opts)}
	if err := f.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func connect(t testing.TB, opts Options) *Client {
	t.Helper()
	c, err := Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// work runs a worker until the test ends or stop is called. stop waits for the worker, hangTime at most: the handlers
// of a test that has failed may wait for it.
func (f *fleet) work(t testing.TB, opts WorkerOptions) (stop func()) {
	t.Helper()
	w := NewWorker(f.Client, opts)
	accept, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(accept, context.WithoutCancel(t.Context())) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
		case <-time.After(hangTime):
			t.Error("the worker's handlers do not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func succeed(_ context.Context, j *Job) (*schemas.Result, error) {
	return &schemas.Result{Status: schemas.Succeeded, Result: j.Task.Inputs, Output: j.Task.Code}, nil
}

// taskEvent returns the event of a task; attrs are pairs of extension names and values.
func taskEvent(id, data string, attrs ...string) event.Event {
	ev := event.New()
	ev.SetID(id)
	ev.SetSource("/test")
	ev.SetType(schemas.TypeTask)
	for i := 0; i < len(attrs); i += 2 {
		ev.SetExtension(attrs[i], attrs[i+1])
	}
	if err := ev.SetData(event.ApplicationJSON, []byte(data)); err != nil {
		panic(err)
	}
	return ev
}

func (f *fleet) submit(t testing.TB, id, data string, attrs ...string) schemas.Record {
	t.Helper()
	rec, err := f.Submit(t.Context(), "acme", taskEvent(id, data, attrs...))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// await waits for the task's terminal record and checks it against its schema.
func (f *fleet) await(t testing.TB, id string) schemas.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	rec, err := f.Wait(ctx, "acme", id)
	if err != nil {
		t.Fatalf("Wait = %v, latest %+v, want a terminal record", err, rec)
	}
	data, err := json.Marshal(rec)
	if err == nil {
		err = schemas.Validate(schemas.RecordV1, data)
	}
	if err != nil {
		t.Errorf("record %s: %v, want it valid", data, err)
	}
	return rec
}

// publish stores an event in TASKS as a foreign producer does.
func (f *fleet) publish(t testing.TB, subject string, h nats.Header, data string) {
	t.Helper()
	if _, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: h, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) inbox(t testing.TB) (string, *nats.Subscription) {
	t.Helper()
	to := "_INBOX.acme." + strings.ToLower(randomToken())
	sub, err := f.nc.SubscribeSync(to)
	if err != nil {
		t.Fatal(err)
	}
	return to, sub
}

func TestTask(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: succeed, Name: "w"})
	to, replies := f.inbox(t)
	rec := f.submit(t, "1", `{"code":"print(1)","inputs":[1],"labels":{"a":"b"}}`, "replyto", to, "session", "s")
	if rec.TaskID != TaskID("acme", "/test", "1") || rec.Pool != "default" || rec.Priority != "normal" ||
		rec.Workspace != "main" {
		t.Errorf("Submit = %+v, want the defaults", rec)
	}
	rec = f.await(t, rec.TaskID)
	res := rec.Result
	if rec.Status != schemas.Succeeded || rec.Run != 1 || len(rec.Attempts) != 1 ||
		rec.Attempts[0].Outcome != "succeeded" {
		t.Errorf("record = %+v, want succeeded in run 1", rec)
	}
	if string(res.Result) != "[1]" || res.Output != "print(1)" || res.Worker != "w" || res.Attempt != 1 ||
		res.Session != "s" || res.Labels["a"] != "b" {
		t.Errorf("result = %+v, want what the handler and the queue set", res)
	}
	ev := reply(t, replies)
	var got schemas.Result
	if err := schemas.Decode(schemas.ResultV1, ev.Data(), &got); err != nil || got.TaskID != rec.TaskID ||
		ev.Type() != schemas.TypeResult {
		t.Errorf("reply = %v, %v, want the result", ev, err)
	}
	f.awaitEmpty(t)
}

func reply(t testing.TB, sub *nats.Subscription) event.Event {
	t.Helper()
	msg, err := sub.NextMsg(hangTime)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := decodeNATS(msg.Header, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// awaitEmpty waits until TASKS is empty because every message was acknowledged.
func (f *fleet) awaitEmpty(t testing.TB) {
	t.Helper()
	eventually(t, "TASKS is empty", func() error {
		counts, err := f.taskSubjects(t.Context())
		if err == nil && len(counts) > 0 {
			err = fmt.Errorf("TASKS has %v, want none", counts)
		}
		return err
	})
}

// expire makes a task expire now.
func (f *fleet) expire(t *testing.T, id string) {
	t.Helper()
	_, _, err := f.change(t.Context(), "acme", id, func(r *storedRecord) (bool, error) {
		r.ExpiresAt = time.Now().UTC()
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, name string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		if clock.Sleep(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestSubmitAgain(t *testing.T) {
	f := newFleet(t)
	first := f.submit(t, "1", `{"code":"x"}`)
	again := f.submit(t, "1", `{"code":"x"}`)
	if again.TaskID != first.TaskID || again.QueueSeq != first.QueueSeq || again.Status != schemas.Queued {
		t.Errorf("Submit again = %+v, want %+v", again, first)
	}
	other, err := f.Submit(t.Context(), "acme", taskEvent("1", `{"code":"y"}`))
	if !errors.Is(err, ErrKeyReused) || other.TaskID != first.TaskID {
		t.Errorf("Submit with other data = %+v, %v, want the first record and %v", other, err, ErrKeyReused)
	}
	key := f.submit(t, "2", `{"code":"x"}`, "idempotencykey", "1")
	if key.TaskID != first.TaskID {
		t.Errorf("Submit with the key = %s, want %s", key.TaskID, first.TaskID)
	}
	changes, stop := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() { // as by a worker that claims the task while it is submitted again
		for changes.Err() == nil {
			_, _, _ = f.change(changes, "acme", first.TaskID, func(*storedRecord) (bool, error) { return true, nil })
		}
	})
	for range 3 {
		f.misses.Store(0)
		if _, err := f.SubmitNew(t.Context(), "acme", taskEvent("1", `{"code":"y"}`)); !errors.Is(err, ErrKeyReused) {
			t.Errorf("SubmitNew with other data = %v, want %v", err, ErrKeyReused)
		}
	}
	stop()
	changing.Wait()
	f.work(t, WorkerOptions{Handler: succeed})
	f.await(t, first.TaskID)
	if ended := f.submit(t, "1", `{"code":"x"}`); ended.Status != schemas.Succeeded || ended.Result == nil {
		t.Errorf("Submit after the end = %+v, want the result", ended)
	}
	f.awaitEmpty(t)
}

// A producer that uses the message id of another tenant's task cannot make the server drop that task as a
// duplicate.
func TestTakenMessageID(t *testing.T) {
	for name, producer := range map[string]bool{"ingest": false, "producer": true} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			id := TaskID("acme", "/test", "1")
			taken := nats.Header{"Nats-Msg-Id": {id + ".0"}, "Nats-Subject": {"tasks.default.normal.acme"}}
			f.publish(t, "tasks.default.normal.other", taken, "")
			opts := f.opts
			opts.Producer = producer
			rec, err := connect(t, opts).Submit(t.Context(), "acme", taskEvent("1", `{"code":"x"}`))
			if err != nil || rec.TaskID != id {
				t.Fatalf("Submit = %+v, %v, want task %s", rec, err, id)
			}
			f.work(t, WorkerOptions{Handler: succeed})
			eventually(t, "record", func() error { // written by the worker if Submit did not
				_, err := f.Record(t.Context(), "acme", id)
				return err
			})
			if ended := f.await(t, id); ended.Status != schemas.Succeeded {
				t.Errorf("task = %+v, want it to run", ended)
			}
			f.awaitEmpty(t)
		})
	}
}
