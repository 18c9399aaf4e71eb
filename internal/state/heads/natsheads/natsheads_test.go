package natsheads_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/codefleet/codefleet/internal/embedded"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/heads"
	"github.com/codefleet/codefleet/internal/state/heads/natsheads"
	"github.com/codefleet/codefleet/internal/state/mem"
	"github.com/codefleet/codefleet/internal/state/statetest"
)

// connect starts a NATS server, and returns its empty bucket for HEADs.
func connect(t *testing.T) (*jobs.HeadBucket, error) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: "-", Log: quiet})
	if err != nil {
		return nil, err
	}
	t.Cleanup(srv.Close)
	client, err := jobs.Connect(t.Context(), jobs.Options{
		Server:      jobs.Server{InProcess: srv},
		Credentials: jobs.Credentials{User: srv.Fleet().User, Password: srv.Fleet().Password},
		Log:         quiet,
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(client.Close)
	return client.OpenHeadBucket(t.Context())
}

func TestNATSHeads(t *testing.T) {
	statetest.TestHeads(t, func() (objects.Objects, *mem.Objects) {
		m := mem.New()
		store := natsheads.New(func() (*jobs.HeadBucket, error) { return connect(t) })
		return heads.With(statetest.WithoutIfMatch{Objects: m}, store), m
	})
}

// TestConnectAgain checks that a failed connection is a temporary error, and that the next request connects again.
func TestConnectAgain(t *testing.T) {
	refused := errors.New("connection refused")
	connects := 0
	store := natsheads.New(func() (*jobs.HeadBucket, error) {
		if connects++; connects == 1 {
			return nil, refused
		}
		return connect(t)
	})
	if _, err := store.List(t.Context(), ""); !errors.Is(err, refused) || !errors.Is(err, objects.ErrTemporary) {
		t.Errorf("List() without a server = %v, want %v that wraps %v", err, objects.ErrTemporary, refused)
	}
	for range 2 {
		if _, err := store.Get(t.Context(), "w/HEAD", ""); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("Get() of a missing HEAD = %v, want %v", err, objects.ErrNotFound)
		}
	}
	if connects != 2 {
		t.Errorf("%d connections, want 2", connects)
	}
}
