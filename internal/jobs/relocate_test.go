package jobs

import (
	"sync/atomic"
	"testing"

	"github.com/codefleet/codefleet/internal/embedded"
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
