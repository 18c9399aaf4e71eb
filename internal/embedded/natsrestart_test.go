package embedded

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

// A write that fails for want of space restarts the server, whatever the free space is. Clients over TCP and in this
// process go on with the same address, and find what was acknowledged.
func TestRestartAfterAFailedWrite(t *testing.T) {
	n, err := StartNATS(t.Context(), NATSOptions{Dir: filepath.Join(t.TempDir(), "nats")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	url, user := n.URL(), n.Fleet()
	var clients []jetstream.JetStream
	for name, option := range map[string]nats.Option{"TCP": nats.Name("TCP"), "in process": nats.InProcessServer(n)} {
		nc, err := nats.Connect(url, option, nats.UserInfo(user.User, user.Password), nats.MaxReconnects(-1),
			nats.ReconnectWait(50*time.Millisecond), nats.CustomInboxPrefix("_INBOX.fleet"))
		if err != nil {
			t.Fatalf("connect %s: %v", name, err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, js)
	}
	const subject = "tasks.default.normal.acme"
	_, err = clients[0].CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
	for _, js := range clients {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	first, output := n.server()
	output.diskFull.Store(true) // as the server's line about a failed write does
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if srv, _ := n.server(); srv != nil && srv != first {
			break
		}
		if err := clock.Sleep(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("the server is not restarted: %v", err)
		}
	}
	if n.URL() != url {
		t.Errorf("URL after the restart = %s, want %s", n.URL(), url)
	}
	for i, js := range clients {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Errorf("Publish by client %d after the restart = %v, want nil", i, err)
		}
	}
	stream, err := clients[0].Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 4 {
		t.Errorf("stream = %+v, %v, want 4 messages", info, err)
	}
}

// The queue starts again only if its disk takes what it is about to write.
func TestProbeSpace(t *testing.T) {
	dir := t.TempDir()
	if err := probeSpace(dir); err != nil {
		t.Errorf("probeSpace = %v, want nil", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*probe*")); err != nil || left != nil {
		t.Errorf("probeSpace leaves %v, %v, want nothing", left, err)
	}
	if err := probeSpace(filepath.Join(dir, "absent")); err == nil {
		t.Error("probeSpace of a directory that does not exist = nil, want an error")
	}
}
