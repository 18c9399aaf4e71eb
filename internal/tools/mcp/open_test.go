package mcp

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type transportFunc func(*http.Request) *http.Response

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestLimitsByTransport checks the default time to connect, and that settings replace the defaults.
func TestLimitsByTransport(t *testing.T) {
	usual := Limits{
		Concurrency: 8, ConnectTimeout: 2 * time.Minute, CallTimeout: time.Minute, MaxResultBytes: 8 << 20,
		IdleTimeout: 10 * time.Minute,
	}
	soon := usual
	soon.ConnectTimeout = 30 * time.Second
	set := Limits{Concurrency: 1, ConnectTimeout: 2, CallTimeout: 3, MaxResultBytes: 4, IdleTimeout: 5}
	for _, c := range []struct {
		server Server
		want   Limits
	}{
		{Server{Command: "uvx"}, usual}, {Server{URL: "https://x"}, soon}, {Server{Command: "uvx", Limits: set}, set},
	} {
		if got := c.server.withDefaults().Limits; got != c.want {
			t.Errorf("limits of %+v = %+v, want %+v", c.server, got, c.want)
		}
	}
}

// Headers are sent to the configured host over the configured scheme, and nowhere else.
func TestRedirects(t *testing.T) {
	for to, followed := range map[string]bool{
		"https://wiki.example/mcp/": true, "/elsewhere": true,
		"http://wiki.example/mcp": false, "https://wiki.example:8443/mcp": false, "https://evil.example/mcp": false,
		"//evil.example": false,
	} {
		c := httpClient(Server{
			URL: "https://wiki.example/mcp", Headers: map[string]string{"Authorization": "Bearer k"},
			Limits: Limits{MaxResultBytes: 100},
		})
		var requests []string
		c.Transport.(*roundTripper).base = transportFunc(func(r *http.Request) *http.Response {
			requests = append(requests, r.URL.String()+" "+r.Header.Get("Authorization"))
			resp := &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r,
			}
			if len(requests) == 1 {
				resp.StatusCode = http.StatusTemporaryRedirect
				resp.Header.Set("Location", to)
			}
			return resp
		})
		resp, err := c.Post("https://wiki.example/mcp", "application/json", strings.NewReader("{}"))
		if resp != nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != followed || (len(requests) == 2) != followed {
			t.Errorf("redirect to %s: error %v, requests %q; want followed %t", to, err, requests, followed)
		}
	}
}
