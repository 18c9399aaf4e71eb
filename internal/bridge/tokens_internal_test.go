package bridge

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The sessions of a token that is revoked, or gets other scopes, end within Options.Recheck after it was last verified,
// also if the bridge itself verified it.
func TestChangedTokenEndsSessions(t *testing.T) {
	t.Run("revoked", func(t *testing.T) {
		testChangedToken(t, http.StatusUnauthorized, `{"code":"unauthorized","error":"revoked"}`)
	})
	t.Run("other scopes", func(t *testing.T) {
		testChangedToken(t, http.StatusOK, `{"tenant":"default","scopes":["read","submit"]}`)
	})
}

// testChangedToken changes the fleet's response about a token.
func testChangedToken(t *testing.T, newStatus int, newBody string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var verified []time.Time
		var changed atomic.Bool
		b := New(Options{Fleet: client.Options{URL: "http://fleet", Token: "t", HTTPClient: &http.Client{
			Transport: roundTrip(func(r *http.Request) *http.Response {
				status, body := http.StatusOK, `{"tenant":"default","scopes":["read"]}`
				if changed.Load() {
					status, body = newStatus, newBody
				}
				verified = append(verified, time.Now())
				return &http.Response{
					StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(body)), Request: r,
				}
			}),
		}}})
		defer b.Close()
		p, err := b.newPrincipal(t.Context(), b.o.Fleet)
		if err == nil {
			err = p.identify(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
		p.servers["full"] = server
		ours, theirs := mcp.NewInMemoryTransports()
		if _, err := server.Connect(t.Context(), ours, nil); err != nil {
			t.Fatal(err)
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "c"}, nil).Connect(t.Context(), theirs, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.recheck()
		time.Sleep(time.Second) //nolint:forbidigo // virtual time, of synctest
		last := time.Now()
		p.checked = last
		b.mu.Lock()
		b.principals[[32]byte{}] = p
		b.mu.Unlock()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time, of synctest
		synctest.Wait()
		for _, at := range verified {
			if gap := at.Sub(last); gap > b.o.Recheck {
				t.Errorf("the token was verified after %s, want at most %s", gap, b.o.Recheck)
			}
			last = at
		}
		changed.Store(true)
		start := time.Now()
		defer time.AfterFunc(time.Hour, func() { _ = session.Close() }).Stop()
		_ = session.Wait()
		if took := time.Since(start); took > b.o.Recheck {
			t.Errorf("the session ended %s after the token was changed, want at most %s", took, b.o.Recheck)
		}
	})
}

// TestRecheckSparesReplacement checks that a token which is refused keeps the principal that replaced the refused one
// during the request.
func TestRecheckSparesReplacement(t *testing.T) {
	var b *Bridge
	var key [32]byte
	var replacement *principal
	b = New(Options{Fleet: client.Options{URL: "http://fleet", Token: "t", HTTPClient: &http.Client{
		Transport: roundTrip(func(r *http.Request) *http.Response {
			b.mu.Lock()
			b.principals[key] = replacement
			b.mu.Unlock()
			return &http.Response{
				StatusCode: http.StatusUnauthorized, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"code":"unauthorized","error":"revoked"}`)), Request: r,
			}
		}),
	}}})
	defer b.Close()
	old, err := b.newPrincipal(t.Context(), b.o.Fleet)
	if err != nil {
		t.Fatal(err)
	}
	if replacement, err = b.newPrincipal(t.Context(), b.o.Fleet); err != nil {
		t.Fatal(err)
	}
	b.principals[key] = old
	b.recheckOne(key, old)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.principals[key] != replacement {
		t.Error("the refused token lost the principal that replaced the one it was verified for")
	}
}
