package jobs

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/schemas"
)

// These tests check properties of the server that the protocol relies on or works around. If one fails with a new
// server, review that part of the protocol.

// deliver submits a task and fetches its message, as a worker does.
func (f *fleet) deliver(t *testing.T, id string) (*lanes, *message) {
	t.Helper()
	f.submit(t, id, `{"code":"x"}`)
	ls := NewWorker(f.Client, WorkerOptions{}).lanes
	t.Cleanup(ls.close)
	return ls, f.fetch(t, ls)
}

func (f *fleet) fetch(t *testing.T, ls *lanes) (d *message) {
	t.Helper()
	eventually(t, "delivery", func() (err error) {
		if d, err = ls.fetch(t.Context(), t.Context(), lane{"default", "normal", "acme"}); err == nil && d == nil {
			err = errors.New("the lane is empty")
		}
		return err
	})
	return d
}

// A late acknowledgement by a lost worker removes the message although another worker has got it: only the record
// protects the task.
func TestServerAcceptsLateAck(t *testing.T) {
	f := newFleet(t, func(o *Options) { o.AckWait = 300 * time.Millisecond })
	ls, first := f.deliver(t, "1")
	second := f.fetch(t, ls)
	if second.seq != first.seq || second.msg.Reply == first.msg.Reply {
		t.Fatalf("delivered message %d, then %d, want a redelivery", first.seq, second.seq)
	}
	if err := first.acknowledge(t.Context(), f.Client); err != nil {
		t.Errorf("late ack = %v, want nil", err)
	}
	f.awaitEmpty(t)
}

// A restarted server has forgotten the ids of acknowledged messages: idempotency must rely on the record.
func TestServerForgetsDuplicates(t *testing.T) {
	dir := t.TempDir()
	user := embedded.NATSUser{User: "fleet", Password: "p"}
	publish := func() (dup, dupAcked bool) {
		srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: dir, Fleet: user, Log: noLog})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		c, err := Connect(t.Context(), Options{
			Server:      Server{InProcess: srv},
			Credentials: Credentials{User: user.User, Password: user.Password}, Log: noLog,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, got := range map[string]*bool{"kept": &dup, "acked": &dupAcked} {
			msg := &nats.Msg{Subject: "tasks.default.normal." + id}
			ack, err := c.js.PublishMsg(t.Context(), msg, jetstream.WithMsgID(id))
			if err != nil {
				t.Fatal(err)
			}
			*got = ack.Duplicate
		}
		stream, err := c.js.Stream(t.Context(), streamTasks)
		if err == nil {
			err = stream.Purge(t.Context(), jetstream.WithPurgeSubject("tasks.default.normal.acked"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return dup, dupAcked
	}
	publish()
	if dup, dupAcked := publish(); !dup || dupAcked {
		t.Errorf("after a restart, a stored message is a duplicate: %v, want true; a removed one: %v, want false",
			dup, dupAcked)
	}
}

// With little free disk space, new streams reserve less, and their other settings can change. A server that has
// reserved more than its disk now has refuses every update: the fleet starts nevertheless, and its streams keep their
// limits until there is space again.
func TestLittleDiskSpace(t *testing.T) {
	dir := t.TempDir()
	user := embedded.NATSUser{User: "fleet", Password: "p"}
	provision := func(dir string, space int64, retention time.Duration) (logs, submitted jetstream.StreamConfig) {
		srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
			Dir: dir, Fleet: user, MaxStoreBytes: space, Log: noLog,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		c := connect(t, Options{
			Server:      Server{InProcess: srv},
			Credentials: Credentials{User: user.User, Password: user.Password}, Log: noLog,
			Storage: Storage{Retention: retention},
		})
		defer c.Close()
		if err := c.Provision(t.Context()); err != nil {
			t.Fatalf("Provision with space for %d MiB: %v", space>>20, err)
		}
		var got [2]jetstream.StreamConfig
		for i, name := range []string{streamLogs, streamSubmitted} {
			info, err := c.streamInfo(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = info.Config
		}
		return got[0], got[1]
	}
	const day = 24 * time.Hour
	tiny := t.TempDir()
	for _, tt := range []struct {
		name            string
		dir             string
		space           int64
		retention       time.Duration
		logs, submitted int64
	}{
		{"enough", dir, 5 << 30, day, maxLogBytes, maxSubmittedBytes},
		{"less than is reserved", dir, 1 << 30, day, maxLogBytes, maxSubmittedBytes},
		{"little", t.TempDir(), 900 << 20, day, 256 << 20, 512 << 20},
		{"very little", tiny, 100 << 20, day, 32 << 20, 32 << 20},
		{"very little, and other settings", tiny, 100 << 20, 2 * day, 32 << 20, 32 << 20},
	} {
		logs, submitted := provision(tt.dir, tt.space, tt.retention)
		if logs.MaxBytes != tt.logs || submitted.MaxBytes != tt.submitted || submitted.MaxAge != tt.retention {
			t.Errorf("%s: limits = %d and %d bytes for %s, want %d and %d for %s", tt.name, logs.MaxBytes,
				submitted.MaxBytes, submitted.MaxAge, tt.logs, tt.submitted, tt.retention)
		}
	}
}

// The server republishes stored messages only: a write that fails causes no notification.
func TestServerRepublishesWhatIsStored(t *testing.T) {
	f := newFleet(t)
	rec := f.submit(t, "1", `{"code":"x"}`)
	sub, err := f.nc.SubscribeSync("notify.acme." + rec.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []uint64{0, 1} {
		e := storedRecord{Record: rec, rev: rev}
		e.Worker = strconv.FormatUint(rev, 10)
		if err := f.swap(t.Context(), &e); (rev == 0) != errors.Is(err, errStale) {
			t.Errorf("swap at revision %d = %v, want an error only if it is stale", rev, err)
		}
	}
	msg, err := sub.NextMsg(hangTime)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := decodeRecord(rec.TaskID, 0, msg.Data); err != nil || e.Worker != "1" {
		t.Errorf("first notification = write %q, %v, want 1", e.Worker, err)
	}
}

// A message requeued with a delay counts against the tenant's cap, and a fetch at the cap returns quickly.
func TestServerCap(t *testing.T) {
	f := newFleet(t, func(o *Options) {
		o.Policy = func(string) (TenantPolicy, bool) { return TenantPolicy{MaxRunning: 1}, true }
	})
	f.submit(t, "2", `{"code":"x"}`)
	ls, d := f.deliver(t, "1")
	if err := d.requeue(f.Client, time.Hour); err != nil {
		t.Fatal(err)
	}
	began, endLag := time.Now(), faulttest.MeasureLag()
	if d, err := ls.fetch(t.Context(), t.Context(), lane{"default", "normal", "acme"}); d != nil || err != nil {
		t.Errorf("fetch at the cap = %+v, %v, want nothing", d, err)
	}
	if elapsed := time.Since(began) - endLag(); elapsed > 500*time.Millisecond {
		t.Errorf("fetch at the cap took %v, want at most 500ms", elapsed)
	}
}

// A consumer that the server has removed as idle is created again, and no message is lost.
func TestServerDropsConsumer(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: succeed})
	f.await(t, f.submit(t, "1", `{"code":"x"}`).TaskID)
	f.awaitEmpty(t)
	if err := f.js.DeleteConsumer(t.Context(), streamTasks, "default_normal_acme"); err != nil {
		t.Fatal(err)
	}
	began, endLag := time.Now(), faulttest.MeasureLag()
	if rec := f.await(t, f.submit(t, "2", `{"code":"x"}`).TaskID); rec.Status != schemas.Succeeded {
		t.Errorf("record = %+v, want succeeded", rec)
	}
	if elapsed := time.Since(began) - endLag(); elapsed > 5*time.Second {
		t.Errorf("a task of a removed consumer took %v, want at most 5s", elapsed)
	}
}

// A free slot gets a message at once. (nats.go's iterators sometimes stall for 5 s or 30 s.)
func TestNoStall(t *testing.T) {
	f := newFleet(t)
	f.work(t, WorkerOptions{Handler: succeed, Slots: 2})
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), hangTime)
		rec := f.submit(t, strconv.Itoa(i), `{"code":"x"}`)
		rec, err := f.Wait(ctx, "acme", rec.TaskID)
		cancel()
		if waited := rec.StartedAt.Sub(rec.SubmittedAt); err != nil || waited > 4*time.Second {
			t.Fatalf("task %d waited %v with a free slot: %v, want at most 4s", i, waited, err)
		}
	}
}

// A client whose user the server does not know (yet) keeps reconnecting.
func TestReconnectsAfterAuthorizationError(t *testing.T) {
	dir := t.TempDir()
	start := func(addr, password string) *embedded.NATS {
		t.Helper()
		srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
			Dir: dir, Addr: addr, Fleet: embedded.NATSUser{User: "fleet", Password: password}, Log: noLog,
		})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	srv := start("127.0.0.1:0", "right")
	addr := strings.TrimPrefix(srv.URL(), "nats://")
	c := connect(t, Options{
		Server: Server{URL: srv.URL()}, Credentials: Credentials{User: "fleet", Password: "right"}, Log: noLog,
	})
	if err := c.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	srv = start(addr, "wrong")
	polls := 0
	eventually(t, "refused connections", func() error {
		if errors.Is(c.nc.LastError(), nats.ErrAuthorization) {
			polls++
		}
		if c.nc.IsClosed() {
			t.Fatal("the client gave up")
		}
		if polls < 100 { // for a second, in which it tries to connect several times
			return errors.New("not refused for long enough")
		}
		return nil
	})
	srv.Close()
	srv = start(addr, "right")
	defer srv.Close()
	eventually(t, "connection", func() error { return c.Ready(t.Context()) })
}
