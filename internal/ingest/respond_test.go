package ingest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
)

// TestRetryAfter checks that each response with the status 429 or 503 says when to try again.
func TestRetryAfter(t *testing.T) {
	s := &Server{}
	s.o.Telemetry.Log = slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierror.New(errcode.TooManyRegistrations, "many"), "1"},
		{&jobs.RefusedError{Code: errcode.Busy, Message: "busy"}, "1"},
		{jobs.ErrBacklogFull, "5"},
		{apierror.New(errcode.Unavailable, "starting"), "1"},
		{apierror.New(errcode.NotFound, "missing"), ""},
	} {
		w := httptest.NewRecorder()
		s.fail(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
		if got := w.Header().Get("Retry-After"); got != c.want {
			t.Errorf("%v: Retry-After %q, want %q", c.err, got, c.want)
		}
	}
}
