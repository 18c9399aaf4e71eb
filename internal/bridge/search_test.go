package bridge_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
)

// searchable is a fleet that finds the same tools whatever is asked.
func searchable(t *testing.T, found client.ToolSearch) bridge.Options {
	t.Helper()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // a client that is gone
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/whoami", answer(client.Identity{Tenant: "t", Scopes: []string{"read"}}))
	mux.HandleFunc("GET /v1/tools/search", answer(found))
	fleet := httptest.NewServer(mux)
	t.Cleanup(fleet.Close)
	return bridge.Options{Fleet: client.Options{URL: fleet.URL, Token: "x"}}
}

// TestSearch: what is found stands by server, and how sure that is beside it.
func TestSearch(t *testing.T) {
	type m = map[string]any
	mail := client.ToolGroup{Server: "mail", Tools: []client.ToolFind{{Tool: "send", Signature: "send(to: str)", Description: "Send a mail."}}}
	unsure := client.ToolSearch{
		Servers: []client.ToolGroup{mail}, Degraded: "embeddings: no answer within 1s",
		Queries: []client.ToolQuery{{Confidence: 0.25, UnmatchedTerms: []string{"zeppelin"}}},
	}
	nothing := client.ToolSearch{Queries: []client.ToolQuery{{UnmatchedTerms: []string{}}}}
	for _, c := range []struct {
		found  client.ToolSearch
		detail string
		want   m
	}{
		{unsure, "name", m{"mail": []any{"send"}, "_search": m{"confidence": 0.25, "unmatched_terms": []any{"zeppelin"}, "degraded": "embeddings: no answer within 1s"}}},
		{unsure, "description", m{"mail": m{"send": m{"description": "send(to: str)  # Send a mail."}}, "_search": m{"confidence": 0.25, "unmatched_terms": []any{"zeppelin"}, "degraded": "embeddings: no answer within 1s"}}},
		{nothing, "name", m{"_search": m{"confidence": 0.0, "unmatched_terms": []any{}}}},
	} {
		for _, profile := range bridge.Profiles() {
			o := searchable(t, c.found)
			o.Profile = profile
			cs, _ := stdio(t, o, nil)
			got, failed := invoke(t, cs, "search_tools", m{"query": "x", "detail_level": c.detail})
			if diff := cmp.Diff(c.want, got); diff != "" || failed {
				t.Errorf("search_tools, level %s, profile %s: failed %v (-want +got):\n%s", c.detail, profile, failed, diff)
			}
		}
	}
}
