package ingest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/codefleet/codefleet/internal/ingest/ingesttest"
)

// TestUsageOfAll checks who may read the usage of all tenants, and of which days.
func TestUsageOfAll(t *testing.T) {
	f := ingesttest.Start(t, 0, nil)
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	for _, c := range []struct {
		token, query string
		want         int
	}{
		{ingesttest.ReadOnly, "", http.StatusOK},
		{ingesttest.ReadOnly, "?all=false", http.StatusOK},
		{ingesttest.ReadOnly, "?all=true", http.StatusForbidden},
		{ingesttest.Operator, "?all=true", http.StatusOK},
		{ingesttest.Operator, "?all=false", http.StatusForbidden}, // it has no tenant
		{ingesttest.Operator, "?all=maybe", http.StatusBadRequest},
		{ingesttest.ReadOnly, "?since=2026-11-01&before=2026-11-02", http.StatusOK},
		{ingesttest.ReadOnly, "?since=2026-11-02&before=2026-11-02", http.StatusBadRequest},
		{ingesttest.ReadOnly, "?since=" + tomorrow, http.StatusBadRequest},
	} {
		header := map[string]string{"Authorization": "Bearer " + c.token}
		resp, _ := request(t, f, "GET", "/v1/usage"+c.query, header, nil)
		if resp.StatusCode != c.want {
			t.Errorf("GET /v1/usage%s = %d, want %d", c.query, resp.StatusCode, c.want)
		}
	}
}
