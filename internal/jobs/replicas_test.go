package jobs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/schemas"
)

// startCluster starts a NATS cluster of n servers, and returns options to connect to it.
func startCluster(t *testing.T, n int) ([]*server.Server, Options) {
	t.Helper()
	var servers []*server.Server
	var urls []string
	routes := make([]*url.URL, n)
	for i := range routes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = &url.URL{Scheme: "nats", Host: l.Addr().String()}
		l.Close()
	}
	for i, route := range routes {
		port, err := strconv.Atoi(route.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, JetStreamMaxStore: maxStoreBytes, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("the server does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	ready := func() error {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n {
				return nil
			}
		}
		return fmt.Errorf("no leader of %d servers", n)
	}
	eventually(t, "cluster", ready)
	return servers, Options{Server: Server{URL: strings.Join(urls, ",")}, AckWait: 10 * time.Second, Log: noLog}
}

// awaitReplicas waits until each stream and bucket has want replicas: a stream responds once it has a leader.
func awaitReplicas(t *testing.T, c *Client, want int) {
	t.Helper()
	for _, name := range c.streamNames() {
		eventually(t, name, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			n, err := c.currentReplicas(ctx, name)
			if err == nil && n != want {
				err = fmt.Errorf("%d replicas, want %d", n, want)
			}
			return err
		})
	}
}

// In a cluster of three, every stream has three replicas. Streams with one replica are raised, with their messages, and
// replicas that were added by hand are kept. Submit works after the loss of a server.
func TestReplicas(t *testing.T) {
	servers, opts := startCluster(t, 3)
	opts.Storage.Replicas = 1
	one := connect(t, opts)
	provision(t, one)
	awaitReplicas(t, one, 1)
	first, err := one.Submit(t.Context(), "acme", taskEvent("first", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, err := one.js.Publish(t.Context(), logSubject("acme", first.TaskID), []byte(strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
	}

	opts.Storage.Replicas = 0
	c := connect(t, opts)
	provision(t, c)
	awaitReplicas(t, c, 3)
	logs, err := c.js.Stream(t.Context(), streamLogs)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := logs.GetLastMsgForSubject(t.Context(), "log.acme.*"); err != nil || m.Sequence != 3 {
		t.Errorf("last log entry = %+v, %v, want sequence 3", m, err)
	}
	if info := logs.CachedInfo(); info.State.Msgs != 3 || info.Config.Mirror != nil ||
		info.Config.PersistMode != jetstream.DefaultPersistMode {
		t.Errorf("logs = %+v, want 3 messages in a synced stream", info)
	}
	provision(t, one) // with replicas: 1
	awaitReplicas(t, c, 3)

	info, err := c.js.Stream(t.Context(), streamTasks)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s.Name() == info.CachedInfo().Cluster.Leader {
			s.Shutdown()
		}
	}
	for i := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), hangTime)
		_, err := c.Submit(ctx, "acme", taskEvent(strconv.Itoa(i), `{"code":"x"}`))
		cancel()
		if err != nil {
			t.Errorf("Submit after the loss of a server = %v, want nil", err)
		}
	}
	if rec, err := c.Record(t.Context(), "acme", first.TaskID); err != nil || rec.Status != schemas.Queued {
		t.Errorf("Record after the loss of a server = %+v, %v, want it queued", rec, err)
	}
}

// provision creates the streams as a process does when it starts: it tries again if the server's response was lost.
func provision(t *testing.T, c *Client) {
	t.Helper()
	for begin := time.Now(); ; {
		err := c.Provision(t.Context())
		if err == nil {
			return
		}
		if !IsTemporary(err) || time.Since(begin) > time.Minute {
			t.Fatalf("Provision = %v, want nil", err)
		}
	}
}

// startServer starts a NATS server without users.
func startServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	opts.JetStreamMaxStore = maxStoreBytes
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// A client that reconnects still knows that it reads from a cluster: whether a record is unknown, only the leader can
// say.
func TestClusteredWhileReconnecting(t *testing.T) {
	s := startServer(t, &server.Options{
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: server.RANDOM_PORT},
	})
	c := connect(t, Options{Server: Server{URL: s.ClientURL()}, Log: noLog})
	lost := c.nc.StatusChanged(nats.RECONNECTING)
	s.Shutdown()
	<-lost
	if !c.clustered() {
		t.Error("clustered() = false without a connection, want true as before")
	}
}

// A replica that does not have a task's record, as after the loss of its disk, ends no run of the task: the leader has
// the record.
func TestHeartbeatWithAReplicaThatLags(t *testing.T) {
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	f := &fleet{Client: connect(t, Options{Server: Server{URL: s.ClientURL()}, AckWait: 10 * time.Second, Log: noLog})}
	provision(t, f.Client)
	f.inCluster.Store(true)
	running, end := make(chan *Job, 1), make(chan struct{})
	f.work(t, WorkerOptions{Handler: func(ctx context.Context, j *Job) (*schemas.Result, error) {
		running <- j
		select {
		case <-end:
			return succeed(ctx, j)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	id := f.submit(t, "x", `{"code":"x"}`).TaskID
	<-running

	records, err := f.js.Stream(t.Context(), streamRecords)
	if err != nil {
		t.Fatal(err)
	}
	conf := records.CachedInfo().Config
	conf.AllowDirect = false // the test responds instead
	if _, err := f.js.UpdateStream(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	reads := make(chan struct{}, 10)
	_, err = f.nc.Subscribe("$JS.API.DIRECT.GET."+streamRecords+".>", func(m *nats.Msg) {
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}}); err != nil {
			t.Error(err)
		}
		reads <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second heartbeat begins after the first one has ended
		if err := f.nc.Publish("cancel.acme."+id, nil); err != nil { // asks for a heartbeat
			t.Fatal(err)
		}
		select {
		case <-reads:
		case <-running:
			t.Fatal("a second run has begun, want one: the lease was not lost")
		}
	}
	close(end)
	if rec := f.await(t, id); rec.Status != schemas.Succeeded || rec.Run != 1 {
		t.Errorf("task = %s after %d runs, want succeeded after 1", rec.Status, rec.Run)
	}
}

// A submission waits for the record that another process is creating: while a cluster replicates the record, it refuses
// a second one, and does not return the first.
func TestSubmitDuringReplication(t *testing.T) {
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	c := connect(t, Options{Server: Server{URL: s.ClientURL()}, AckWait: 10 * time.Second, Log: noLog})
	provision(t, c)
	records, err := c.js.Stream(t.Context(), streamRecords)
	if err != nil {
		t.Fatal(err)
	}
	conf := records.CachedInfo().Config
	conf.AllowDirect = false // the test responds instead
	if _, err := c.js.UpdateStream(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	const subject = "$JS.API.DIRECT.GET." + streamRecords + "."
	reads := 0
	_, err = c.nc.Subscribe(subject+">", func(m *nats.Msg) {
		response := &nats.Msg{Header: nats.Header{"Status": {"404"}}}
		switch reads++; reads {
		case 1: // Submit looks for the task. Then another process creates the record.
			rec := storedRecord{Record: schemas.Record{
				TaskID: m.Subject[strings.LastIndex(m.Subject, ".")+1:], Tenant: "acme", Status: schemas.Queued,
			}}
			if err := c.swap(context.WithoutCancel(t.Context()), &rec); err != nil {
				t.Error(err)
			}
		case 2: // the record is not replicated yet
		default:
			last, err := c.lastOfLeader(t.Context(), streamRecords, strings.TrimPrefix(m.Subject, subject))
			if err != nil {
				t.Error(err)
			}
			response.Header = nats.Header{jetstream.SequenceHeader: {strconv.FormatUint(last.Seq, 10)}}
			response.Data = last.Data
		}
		if err := m.RespondMsg(response); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := c.Submit(t.Context(), "acme", taskEvent("1", `{"code":"x"}`))
	if !errors.Is(err, ErrKeyReused) || rec.TaskID != TaskID("acme", "/test", "1") {
		t.Errorf("Submit() = %s, %v, want the other process's record, which has no hash", rec.TaskID, err)
	}
}

// A replica may not have the latest value of a key yet: the leader is asked for pauses that end, tenants, tokens that
// are revoked, automations and heads.
func TestLeaderIsAsked(t *testing.T) {
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	c := connect(t, Options{Server: Server{URL: s.ClientURL()}, Log: noLog})
	provision(t, c)
	asked, err := c.nc.SubscribeSync("$JS.API.DIRECT.GET.>")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pause(t.Context(), schemas.Pause{Target: schemas.PauseFleet}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if was, err := c.Resume(t.Context(), schemas.PauseFleet); was != want || err != nil {
			t.Errorf("Resume() = %v, %v, want %v", was, err, want)
		}
	}
	if _, err := c.CreateTenant(t.Context(), "new", ""); err != nil {
		t.Fatal(err)
	}
	if created, err := c.IsCreated(t.Context(), "new"); !created || err != nil {
		t.Errorf("IsCreated() = %v, %v, want true", created, err)
	}
	token, err := c.CreateToken(t.Context(), schemas.Token{Tenant: "new"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, ErrUnknownToken} {
		if err := c.RevokeToken(t.Context(), token.ID); !errors.Is(err, want) {
			t.Errorf("RevokeToken() = %v, want %v", err, want)
		}
	}
	automations, err := c.Automations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heads, err := c.OpenHeadBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	added := Automation{Kind: "schedule", Tenant: "acme", Name: "a", Data: []byte("{}")}
	rev, err := automations.Swap(t.Context(), added)
	a, errGet := automations.Get(t.Context(), "schedule", "acme", "a")
	if err = errors.Join(err, errGet); err != nil || a.Revision != rev || string(a.Data) != "{}" {
		t.Errorf("Get() of an automation = %+v, %v, want revision %d", a, err, rev)
	}
	if _, err := automations.Get(t.Context(), "schedule", "acme", "b"); !errors.Is(err, ErrAutomationNotFound) {
		t.Errorf("Get() of no automation = %v, want %v", err, ErrAutomationNotFound)
	}
	rev, err = heads.Swap(t.Context(), "acme/main", 0, []byte("1"))
	h, errGet := heads.Get(t.Context(), "acme/main")
	if err = errors.Join(err, errGet); err != nil || h.Revision != rev || string(h.Data) != "1" ||
		h.Modified.Sub(at).Abs() > time.Minute {
		t.Errorf("Get() of a head = %+v, %v, want revision %d", h, err, rev)
	}
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := asked.Pending(); n != 0 {
		t.Errorf("%d requests to any replica, want none", n)
	}
}

// A message that another process publishes at the same time is published once: while a cluster replicates the first
// one, it refuses the second one.
func TestPublishDuringReplication(t *testing.T) {
	s := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	c := connect(t, Options{Server: Server{URL: s.ClientURL()}, Log: noLog})
	responses := []string{
		`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}`,
		`{"stream":"TASKS","seq":7,"duplicate":true}`,
	}
	_, err := c.nc.Subscribe("tasks.>", func(m *nats.Msg) {
		if err := m.Respond([]byte(responses[0])); err != nil {
			t.Error(err)
		}
		responses = responses[1:]
	})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := c.publishRetrying(t.Context(), nats.NewMsg("tasks.x"), "id")
	if err != nil || ack.Sequence != 7 {
		t.Errorf("publishRetrying() = %+v, %v, want sequence 7", ack, err)
	}
}

// With fewer than three servers, the default is one replica, and a setting that cannot be kept is an error.
func TestReplicasOfSmallCluster(t *testing.T) {
	_, opts := startCluster(t, 2)
	c := connect(t, opts)
	provision(t, c)
	awaitReplicas(t, c, 1)
	opts.Storage.Replicas = 3
	err := connect(t, opts).Provision(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nats.replicas: the NATS cluster has fewer than 3 servers") {
		t.Errorf("Provision with 3 replicas = %v, want an error that names the setting", err)
	}
}

// If a process is killed while it copies a stream, the next one continues, also where an earlier version stopped. No
// message is lost that is published meanwhile.
func TestRemakeContinues(t *testing.T) {
	const spare = streamLogs + copySuffix
	for name, begin := range map[string]func(w *remaking) error{
		"from the start": func(*remaking) error { return nil },
		"stopped by an earlier version after the stream was deleted": func(w *remaking) error {
			return errors.Join(w.mirror(), w.js.DeleteStream(w.t.Context(), streamLogs))
		},
		"stopped by an earlier version after the copy became an ordinary stream": func(w *remaking) error {
			return errors.Join(w.mirror(), w.js.DeleteStream(w.t.Context(), streamLogs),
				w.endMirror([]string{spare}))
		},
		"with a copy that is obsolete, after a change of the settings": func(w *remaking) error {
			_, err := w.js.CreateStream(w.t.Context(), jetstream.StreamConfig{Name: spare, Subjects: []string{spare}})
			return err
		},
		"with a mirror of the wrong mode, after a change of the settings": func(w *remaking) error {
			mirror := mirrorOf(spare, w.conf)
			mirror.PersistMode = jetstream.AsyncPersistMode
			err := errors.Join(w.mirror(), w.js.DeleteStream(w.t.Context(), streamLogs),
				w.endMirror(w.conf.Subjects))
			if err == nil {
				_, err = w.js.CreateStream(w.t.Context(), mirror)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &remaking{fleet: newFleet(t), t: t}
			for i := range 10 {
				if _, err := w.js.Publish(t.Context(), "log.acme.x", []byte(strconv.Itoa(i))); err != nil {
					t.Fatal(err)
				}
			}
			w.conf, w.published = w.info(streamLogs).Config, 10
			w.conf.PersistMode = jetstream.DefaultPersistMode
			if err := begin(w); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the last step", w.step) // each step by another process
			logs := w.info(streamLogs)
			if logs == nil || logs.State.Msgs != w.published || logs.State.LastSeq != w.published ||
				logs.Config.Mirror != nil || logs.Config.PersistMode != jetstream.DefaultPersistMode ||
				len(logs.Config.Subjects) != 1 {
				t.Fatalf("logs = %+v, want the %d acknowledged messages in a synced stream", logs, w.published)
			}
			if copied := w.info(spare); copied != nil {
				t.Errorf("copy = %+v, want none", copied)
			}
			provision(t, w.Client)
			if w.info(streamLogs).Config.PersistMode != jetstream.DefaultPersistMode {
				t.Error("Provision with one replica made the stream unsynced, want it synced as before")
			}
		})
	}
}

// remaking makes the logs a synced stream, step by step.
type remaking struct {
	*fleet
	t         *testing.T
	conf      jetstream.StreamConfig
	published uint64 // last sequence that was acknowledged
}

func (w *remaking) info(stream string) *jetstream.StreamInfo {
	info, err := w.streamInfo(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// mirror creates the copy, and waits until it is complete.
func (w *remaking) mirror() error {
	if _, err := w.remakeStep(w.t.Context(), w.conf, w.info(streamLogs), nil); err != nil {
		return err
	}
	eventually(w.t, "mirror", func() error {
		if copied := w.info(streamLogs + copySuffix); copied.State.Msgs != w.published {
			return fmt.Errorf("%d messages are copied", copied.State.Msgs)
		}
		return nil
	})
	return nil
}

// endMirror makes the copy an ordinary stream.
func (w *remaking) endMirror(subjects []string) error {
	_, err := w.js.UpdateStream(w.t.Context(), ordinary(w.info(streamLogs+copySuffix).Config, subjects))
	return err
}

// step does the next step, and returns an error unless it was the last one.
func (w *remaking) step() error {
	main, copied := w.info(streamLogs), w.info(streamLogs+copySuffix)
	// Another process publishes after the step's decision. While both streams are closed, the message is refused.
	ack, err := w.js.Publish(w.t.Context(), "log.acme.x", []byte("between"), jetstream.WithRetryAttempts(0))
	if err == nil {
		w.published = ack.Sequence
	} else if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	done, err := w.remakeStep(w.t.Context(), w.conf, main, copied)
	if main != nil && main.Config.Mirror == nil && !isClosed(main) && w.info(streamLogs) == nil && isMirror(copied) {
		w.t.Error("the stream was deleted while it took messages")
	}
	if copied != nil && !isMirror(copied) && !isClosed(copied) && w.info(copied.Config.Name) == nil {
		w.t.Error("the copy was deleted while it took messages")
	}
	if err == nil && !done {
		err = fmt.Errorf("not done: %+v, %+v", main, copied)
	}
	return err
}

func isMirror(s *jetstream.StreamInfo) bool { return s != nil && s.Config.Mirror != nil }

// The lock of a process that copies a stream is renewed, so that it does not become stale. The process stops when
// another one has taken the lock.
func TestCopyLock(t *testing.T) {
	f := newFleet(t)
	lock, err := f.lockCopy(t.Context(), streamLogs)
	if err != nil {
		t.Fatal(err)
	}
	first := lock.rev
	if err := lock.renew(t.Context()); err != nil || lock.rev != first {
		t.Errorf("renew of a new lock = %v, revision %d; want %d", err, lock.rev, first)
	}
	lock.renewed = time.Time{}
	if err := lock.renew(t.Context()); err != nil || lock.rev == first {
		t.Errorf("renew of an old lock = %v, revision %d; want another one", err, lock.rev)
	}
	lock.release(t.Context())
	if _, err := f.lockCopy(t.Context(), streamLogs); err != nil {
		t.Fatalf("lockCopy after release = %v, want nil", err)
	}
	lock.renewed = time.Time{}
	if err := lock.renew(t.Context()); err == nil {
		t.Error("renew of another process's lock succeeded")
	}
}
