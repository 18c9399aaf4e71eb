package bridge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/codefleet/codefleet/client"
)

// TestWait checks how long a call waits. No argument is too large.
func TestWait(t *testing.T) {
	c := &call{principal: &principal{b: New(Options{MaxWait: 10 * time.Second})}}
	for _, w := range []struct {
		ms   *int
		want time.Duration
	}{
		{nil, 10 * time.Second},
		{new(0), 0},
		{new(9999), 9999 * time.Millisecond},
		{new(10_001), 10 * time.Second},
		{new(10_000_000_000_000), 10 * time.Second},
	} {
		if got, err := c.wait(w.ms, getWait); err != nil || got != w.want {
			t.Errorf("wait(%v) = %v, %v, want %v", w.ms, got, err, w.want)
		}
	}
}

// TestReadBody checks the responses to bodies that do not arrive.
func TestReadBody(t *testing.T) {
	b := New(Options{Fleet: client.Options{URL: "http://fleet"}, Limits: Limits{Body: 10}})
	for _, c := range []struct {
		body   io.Reader
		status int
		text   string
	}{
		{iotest.ErrReader(os.ErrDeadlineExceeded), http.StatusRequestTimeout, "the body did not arrive within 1m0s\n"},
		{
			iotest.ErrReader(io.ErrUnexpectedEOF), http.StatusBadRequest,
			"the connection ended before the whole body arrived\n",
		},
		{strings.NewReader("12345678901"), http.StatusRequestEntityTooLarge, "the body is larger than 10 bytes\n"},
	} {
		w := httptest.NewRecorder()
		ok := b.readBody(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathMCP, c.body))
		if ok || w.Code != c.status || w.Body.String() != c.text {
			t.Errorf("readBody = %v with %d %q, want false with %d %q", ok, w.Code, w.Body, c.status, c.text)
		}
	}
}
