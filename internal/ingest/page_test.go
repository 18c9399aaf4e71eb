package ingest

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPageRedirectIsRelative checks the redirect to the page, which may be behind a proxy that removes a prefix.
func TestPageRedirectIsRelative(t *testing.T) {
	w := httptest.NewRecorder()
	err := new(Server).toPage(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if got := w.Header().Get("Location"); err != nil || w.Code != http.StatusSeeOther || got != "ui/" {
		t.Errorf("toPage = %v, status %d, Location %q; want 303 and ui/", err, w.Code, got)
	}
}
