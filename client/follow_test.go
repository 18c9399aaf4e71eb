package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/client"
)

// startFleet starts a server that accepts one token, and writes its fleet.json.
func startFleet(t *testing.T, file, token string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			respond(w, http.StatusUnauthorized, client.APIError{Code: "unauthorized", Message: "unknown token"})
			return
		}
		respond(w, http.StatusOK, record(client.Succeeded))
	}))
	t.Cleanup(srv.Close)
	data, err := json.Marshal(client.FleetFile{URL: srv.URL, Token: token})
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// TestAgentUsesTheLocatedFleet checks that an agent uses the fleet of its Located.Path, and else the one that Locate
// finds, which it follows to another address.
func TestAgentUsesTheLocatedFleet(t *testing.T) {
	named, found := filepath.Join(t.TempDir(), "fleet.json"), filepath.Join(t.TempDir(), "fleet.json")
	startFleet(t, named, "named")
	first := startFleet(t, found, "found")
	t.Setenv("CODEFLEET_FLEET", found)
	agent := func(o client.Options) *client.Client {
		o.RetryFor = -1
		a, err := client.NewAgent(t.Context(), client.AgentOptions{Options: o})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a.Client()
	}
	a := agent(client.Options{Located: client.Located{Path: named, Credentials: true}})
	if _, err := a.Get(t.Context(), taskID); err != nil {
		t.Errorf("Get from the named fleet = %v, want the record", err)
	}
	a, own := agent(client.Options{}), agent(client.Options{Token: "found"})
	first.Close()
	startFleet(t, found, "second")
	if _, err := a.Get(t.Context(), taskID); err != nil {
		t.Errorf("Get from the fleet at its other address = %v, want the record", err)
	}
	_, err := own.Get(t.Context(), taskID)
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "unauthorized" {
		t.Errorf("Get with the caller's token = %v, want unauthorized", err)
	}
}

// TestFollowsAFleet checks that a client finds a fleet that starts later, and one that starts again with another
// address or another token.
func TestFollowsAFleet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.json")
	o, err := client.Locate(file)
	if !errors.Is(err, os.ErrNotExist) || o.Located.Path != file {
		t.Fatalf("Locate = %+v, %v, want the path and an error", o, err)
	}
	o.RetryFor = -1
	c, err := client.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(t.Context(), taskID); !errors.Is(err, client.ErrNoFleet) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Get without a fleet = %v, want %v, because the file does not exist", err, client.ErrNoFleet)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), taskID); err == nil || !strings.Contains(err.Error(), "is not a fleet.json") {
		t.Errorf("Get with half of the file = %v, want that it is no fleet.json", err)
	}
	for _, token := range []string{"first", "first", "second"} {
		srv := startFleet(t, file, token)
		if r, err := c.Get(t.Context(), taskID); err != nil || r.Status != client.Succeeded {
			t.Errorf("Get = %+v, %v, want the record", r, err)
		}
		srv.Close()
		if _, err := c.Get(t.Context(), taskID); err == nil {
			t.Error("Get from a stopped fleet succeeded")
		}
	}
	startFleet(t, file, "third")
	own, err := client.New(t.Context(), client.Options{
		Located: client.Located{Path: file}, Token: "mine", RetryFor: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	_, err = own.Get(t.Context(), taskID)
	if e, ok := errors.AsType[*client.APIError](err); !ok || e.Code != "unauthorized" {
		t.Errorf("Get with a token that is not the file's = %v, want unauthorized", err)
	}
}
