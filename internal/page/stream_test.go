package page

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeartbeats checks that a stream without events sends a comment each heartbeatTime, until its context ends.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := &stream{w: w, rc: http.NewResponseController(w)}
		ctx, cancel := context.WithTimeout(t.Context(), 3*heartbeatTime+time.Second)
		defer cancel()
		s.heartbeats(ctx)
		if n := strings.Count(w.Body.String(), ":\n\n"); n != 3 {
			t.Errorf("%d heartbeats, want 3: %q", n, w.Body)
		}
	})
}
