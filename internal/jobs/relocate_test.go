package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/logtest"
)

// TestRelocates stops the server of a client and starts it at another address, with another password. The client finds
// it, at its start and later.
func TestRelocates(t *testing.T) {
	dir := t.TempDir()
	var at atomic.Pointer[Location]
	start := func(password string) *embedded.NATS {
		srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{
			Dir: dir, Fleet: embedded.NATSUser{User: "fleet", Password: password}, Log: noLog,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Close)
		at.Store(&Location{srv.URL(), "fleet", password})
		return srv
	}
	first := start("first")
	c, err := Connect(t.Context(), Options{
		Server: Server{URL: "nats://127.0.0.1:1", Wait: true}, Log: noLog,
		Credentials: Credentials{User: "fleet", Password: "old"},
		Relocate:    func() (Location, bool) { return *at.Load(), true },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	provision(t, c)
	rec, err := c.Submit(t.Context(), "acme", taskEvent("1", `{"code":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	start("second")
	eventually(t, "the record on the new server", func() error {
		_, err := c.Record(t.Context(), "acme", rec.TaskID)
		return err
	})
}

// A client that waits for a server which has moved says so, with the new address.
func TestWaitsAtTheNewAddress(t *testing.T) {
	var log logtest.Log
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Connect(ctx, Options{
			Server: Server{URL: "nats://127.0.0.1:1", Wait: true}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Relocate: func() (Location, bool) { return Location{URL: "nats://127.0.0.1:2"}, true },
		})
		ended <- err
	}()
	eventually(t, "the log", func() error {
		if text := log.String(); !strings.Contains(text, `"waiting for NATS" url=nats://127.0.0.1:2`) {
			return fmt.Errorf("log = %q, want that the client waits for the new address", text)
		}
		return nil
	})
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(),
		"connect to NATS nats://127.0.0.1:2: ") {
		t.Errorf("Connect = %v, want %v with the new address", err, context.Canceled)
	}
}
