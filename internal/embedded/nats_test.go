package embedded_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/embedded"
)

func start(t *testing.T, opts embedded.NATSOptions) *embedded.NATS {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	n, err := embedded.StartNATS(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func dial(t *testing.T, n *embedded.NATS, u embedded.NATSUser, inbox string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append(opts, nats.UserInfo(u.User, u.Password), nats.CustomInboxPrefix(inbox),
		nats.PermissionErrOnSubscribe(true))
	nc, err := nats.Connect(n.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestPasswordRequired(t *testing.T) {
	n := start(t, embedded.NATSOptions{})
	for _, opt := range []nats.Option{
		nats.UserInfo("", ""), nats.UserInfo(embedded.FleetUser, ""),
		nats.UserInfo(embedded.FleetUser, "guess"),
	} {
		nc, err := nats.Connect(n.URL(), opt)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("Connect = %v, %v, want %v", nc, err, nats.ErrAuthorization)
		}
	}
}

func TestListenErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: l.Addr().String()})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(fmt.Sprint(err), l.Addr().String()) {
		t.Errorf("StartNATS on a used port = %v, want %v with the address", err, syscall.EADDRINUSE)
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"} {
		if n, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: addr}); err == nil {
			n.Close()
			t.Errorf("StartNATS(%q) = nil, want an error", addr)
		}
	}
}

func TestUnwritableDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below"), "/proc/none"} {
		n, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: dir})
		if err == nil {
			n.Close()
			t.Errorf("StartNATS(%q) = nil, want an error", dir)
			continue
		}
		t.Log(err)
	}
}

// The configuration of a server has hashes of the passwords only.
func TestPasswordsAreHashed(t *testing.T) {
	conf, err := embedded.NATSAccounts(embedded.NATSUser{User: "fleet", Password: "first-secret"},
		map[string]embedded.NATSUser{"acme": {User: "acme", Password: "second-secret"}})
	if err != nil || strings.Contains(conf, "secret") || strings.Count(conf, `"$2a$`) != 2 {
		t.Errorf("NATSAccounts = %s, %v, want two hashes and no password", conf, err)
	}
}

// A tenant can use its tasks, records and replies, and no others.
func TestTenantPermissions(t *testing.T) {
	alice := embedded.NATSUser{User: "alice", Password: "a"}
	n := start(t, embedded.NATSOptions{Tenants: map[string]embedded.NATSUser{"acme": alice}})
	nc := dial(t, n, alice, "_INBOX.acme", nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))

	publish := func(subject string) bool {
		t.Helper()
		before := nc.LastError()
		if err := errors.Join(nc.Publish(subject, nil), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		return nc.LastError() == before //nolint:errorlint // whether it is the same error value
	}
	for subject, want := range map[string]bool{
		"tasks.default.normal.acme":       true,
		"tasks.default.normal.other":      false,
		"tasks.default.normal":            false,
		"events.acme":                     true,
		"events.other":                    false,
		"$KV.TASKSTATE.acme.x":            false,
		"wake.default.normal.acme":        false,
		"notify.acme.x":                   false,
		"offer.acme.x":                    true,
		"offer.other.x":                   false,
		"offers":                          false,
		"offers.acme":                     false,
		"tool.acme.crm.find":              false,
		"tool.other.crm.find":             false,
		"_INBOX.fleet.x":                  false,
		"_R_.x":                           false,
		"dlq.acme.x":                      false,
		"audit.acme":                      false,
		"$JS.API.STREAM.MSG.GET.AUDIT":    false,
		"$JS.API.CONSUMER.CREATE.AUDIT":   false,
		"log.acme.x":                      false,
		"$JS.API.STREAM.DELETE.TASKS":     false,
		"$JS.API.STREAM.INFO.TASKS":       false,
		"$JS.API.DIRECT.GET.KV_TASKSTATE": false,
		"$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE.acme.x":  true,
		"$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE.other.x": false,
		"$JS.API.DIRECT.GET.AUDIT.audit.acme":                   false,
	} {
		if got := publish(subject); got != want {
			t.Errorf("publish on %s allowed = %v, want %v", subject, got, want)
		}
	}
	for subject, want := range map[string]bool{
		"notify.acme.>":   true,
		"_INBOX.acme.>":   true,
		"tool.acme.*.*":   true,
		"offers":          true,
		"offers.acme":     true,
		"tool.other.*.*":  false,
		"tool.>":          false,
		"offers.other":    false,
		"offers.>":        false,
		"offer.*.*":       false,
		"notify.>":        false,
		"notify.other.>":  false,
		"_INBOX.other.>":  false,
		"tasks.>":         false,
		"wake.>":          false,
		"log.acme.>":      false,
		"audit.acme":      false,
		"$KV.TASKSTATE.>": false,
	} {
		sub, err := nc.SubscribeSync(subject)
		if err := errors.Join(err, nc.Flush()); err != nil { // after it, a refusal has arrived
			t.Fatal(err)
		}
		_, err = sub.NextMsg(time.Millisecond)
		if got := !errors.Is(err, nats.ErrPermissionViolation); got != want {
			t.Errorf("subscribe to %s allowed = %v (%v), want %v", subject, got, err, want)
		}
	}
}

// A tenant cannot make the server write to a forbidden subject by naming it as the reply subject of a permitted
// request.
func TestTenantReplySubject(t *testing.T) {
	alice := embedded.NATSUser{User: "alice", Password: "a"}
	n := start(t, embedded.NATSOptions{Tenants: map[string]embedded.NATSUser{"acme": alice}})
	fleet := dial(t, n, n.Fleet(), "_INBOX.fleet")
	js, err := jetstream.New(fleet)
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"TASKS": "tasks.*.*.*", "KV_TASKSTATE": "$KV.TASKSTATE.>"} {
		if _, err := js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "$KV.TASKSTATE.acme.mine", []byte(`{"forged":true}`)); err != nil {
		t.Fatal(err)
	}
	nc := dial(t, n, alice, "_INBOX.acme")
	for _, request := range []string{
		"tasks.default.normal.acme",
		"$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE.acme.mine",
	} {
		for _, reply := range []string{"$KV.TASKSTATE.other.victim", "tasks.default.normal.other"} {
			if err := errors.Join(nc.PublishRequest(request, reply, nil), nc.Flush()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The tenant may publish with an acknowledgement, read, subscribe, and receive a reply.
	response, err := nc.Request("tasks.default.normal.acme", nil, time.Minute)
	if err != nil || !strings.Contains(string(response.Data), `"stream":"TASKS"`) {
		t.Errorf("publish a task = %v, %v; want it stored in TASKS", response, err)
	}
	response, err = nc.Request("$JS.API.DIRECT.GET.KV_TASKSTATE.$KV.TASKSTATE.acme.mine", nil, time.Minute)
	if err != nil || string(response.Data) != `{"forged":true}` {
		t.Errorf("read a record = %v, %v; want the record", response, err)
	}
	for _, subject := range []string{"notify.acme.reply.x", "_INBOX.acme.x"} {
		sub, err := nc.SubscribeSync(subject)
		if err := errors.Join(err, nc.Flush(), fleet.Publish(subject, []byte("r"))); err != nil {
			t.Fatal(err)
		}
		if msg, err := sub.NextMsg(time.Minute); err != nil || string(msg.Data) != "r" {
			t.Errorf("NextMsg(%s) = %v, %v; want \"r\"", subject, msg, err)
		}
	}

	stream, err := js.Stream(t.Context(), "KV_TASKSTATE")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := stream.GetLastMsgForSubject(t.Context(), "$KV.TASKSTATE.other.victim"); !errors.Is(err,
		jetstream.ErrMsgNotFound) {
		t.Errorf("another tenant's record was written through a reply subject: %+v, %v", msg, err)
	}
	stream, err = js.Stream(t.Context(), "TASKS")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := stream.GetLastMsgForSubject(t.Context(), "tasks.default.normal.other"); !errors.Is(err,
		jetstream.ErrMsgNotFound) {
		t.Errorf("another tenant's task was written through a reply subject: %+v, %v", msg, err)
	}
}

func TestRestartKeepsData(t *testing.T) {
	opts := embedded.NATSOptions{Dir: t.TempDir(), Fleet: embedded.NATSUser{User: "fleet", Password: "p"}}
	for i := range 2 {
		n, err := embedded.StartNATS(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect("", nats.InProcessServer(n), nats.UserInfo("fleet", "p"))
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"tasks.>"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := int(s.CachedInfo().State.Msgs); got != i {
			t.Errorf("messages after start %d = %d, want %d", i, got, i)
		}
		if _, err := js.Publish(t.Context(), "tasks.x", nil); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		n.Close()
	}
}

// TestManyConsumers checks that a stream can have more consumers than the server allows by default: each client that
// watches a task has one.
func TestManyConsumers(t *testing.T) {
	n := start(t, embedded.NATSOptions{})
	js, err := jetstream.New(dial(t, n, n.Fleet(), "_INBOX"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MANY", Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1001 {
		_, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{MemoryStorage: true})
		if err != nil {
			t.Fatalf("consumer %d: %v", i, err)
		}
	}
}
