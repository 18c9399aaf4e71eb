package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
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
		{fmt.Errorf("list tasks: %w: %w", jobs.ErrIndexing, context.DeadlineExceeded), "1"},
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

// TestLimitThatNoQuotaRaises checks that a change which exceeds such a limit does not count as an outage of the store.
func TestLimitThatNoQuotaRaises(t *testing.T) {
	err := storeError(fmt.Errorf("edit: %w: too many patterns", state.ErrQuota))
	e, ok := errors.AsType[*apierror.Error](err)
	if !ok || e.Code != errcode.QuotaExceeded || !strings.Contains(e.Hint, "no quota raises") {
		t.Errorf("storeError() = %v, want %s with its own hint", err, errcode.QuotaExceeded)
	}
}
