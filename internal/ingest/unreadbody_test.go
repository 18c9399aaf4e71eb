package ingest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deadlines records the time limit of a request's body.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// TestBodyWithoutContentEndsItsTimeLimit checks that a request whose body says nothing may take longer than a body.
func TestBodyWithoutContentEndsItsTimeLimit(t *testing.T) {
	for body, want := range map[string]int{"{}": 1, `{"a":1}`: 0} {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodPost, "/v1/x", strings.NewReader(body))
		err := route{pattern: "POST /v1/x"}.refuseUnread(w, r)
		if len(w.set) != want || (err == nil) != (want == 1) || want == 1 && !w.set[0].IsZero() {
			t.Errorf("body %s: %v, time limits %v, want %d that is zero", body, err, w.set, want)
		}
	}
}
