package bridge_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
)

// searchable starts a fleet in which every search finds the same tools. lastQuery returns the parameters of the last
// search.
func searchable(t *testing.T, found client.ToolSearch) (o bridge.Options, lastQuery func() url.Values) {
	t.Helper()
	respond := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/whoami", respond(client.Identity{Tenant: "t", Scopes: []string{"read"}}))
	var last atomic.Value
	mux.HandleFunc("GET /v1/tools/search", func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.URL.Query())
		respond(found)(w, r)
	})
	fleet := httptest.NewServer(mux)
	t.Cleanup(fleet.Close)
	lastQuery = func() url.Values { return last.Load().(url.Values) }
	return bridge.Options{Fleet: client.Options{URL: fleet.URL, Token: "x"}}, lastQuery
}

// TestSearch checks that a result has the tools by server, and _search beside the servers.
func TestSearch(t *testing.T) {
	type m = map[string]any
	mail := client.ToolGroup{
		Server: "mail",
		Tools:  []client.ToolMatch{{Tool: "send", Signature: "send(to: str)", Description: "Send a mail."}},
	}
	uncertain := client.ToolSearch{
		Servers: []client.ToolGroup{mail}, Degraded: "embeddings: no response within 1s",
		Queries: []client.ToolQuery{{Confidence: 0.25, UnmatchedTerms: []string{"zeppelin"}}},
	}
	nothing := client.ToolSearch{Queries: []client.ToolQuery{{UnmatchedTerms: []string{}}}}
	for _, c := range []struct {
		found  client.ToolSearch
		detail string
		want   m
	}{
		{uncertain, "name", m{
			"mail": []any{"send"},
			"_search": m{
				"confidence": 0.25, "unmatched_terms": []any{"zeppelin"},
				"degraded": "embeddings: no response within 1s",
			},
		}},
		{uncertain, "description", m{
			"mail": m{"send": m{"description": "send(to: str)  # Send a mail."}},
			"_search": m{
				"confidence": 0.25, "unmatched_terms": []any{"zeppelin"},
				"degraded": "embeddings: no response within 1s",
			},
		}},
		{nothing, "name", m{"_search": m{"confidence": 0.0, "unmatched_terms": []any{}}}},
	} {
		for _, profile := range bridge.Profiles() {
			o, _ := searchable(t, c.found)
			o.Profile = profile
			cs, _ := stdio(t, o, nil)
			got, failed := invoke(t, cs, "search_tools", m{"query": "x", "detail_level": c.detail})
			if diff := cmp.Diff(c.want, got); diff != "" || failed {
				t.Errorf("search_tools, level %s, profile %s: failed %v (-want +got):\n%s", c.detail, profile, failed,
					diff)
			}
		}
	}
}

// TestSearchWithSeveralQueries checks that several queries are one search, and that the result lists each query.
func TestSearchWithSeveralQueries(t *testing.T) {
	type m = map[string]any
	found := client.ToolSearch{
		Servers: []client.ToolGroup{{Server: "mail", Tools: []client.ToolMatch{{Tool: "send"}, {Tool: "read"}}}},
		Queries: []client.ToolQuery{
			{Query: "send a mail", Tools: []string{"mail/send"}, Confidence: 0.9, UnmatchedTerms: []string{"x"}},
			{
				Query:          "read mail",
				Tools:          []string{"mail/read", "mail/send"},
				Confidence:     0.4,
				UnmatchedTerms: []string{"y", "x"},
			},
		},
	}
	want := m{"mail": []any{"send", "read"}, "_search": m{
		"confidence": 0.4, "unmatched_terms": []any{"x", "y"},
		"queries": []any{
			m{"query": "send a mail", "tools": []any{"mail/send"}, "confidence": 0.9, "unmatched_terms": []any{"x"}},
			m{
				"query":           "read mail",
				"tools":           []any{"mail/read", "mail/send"},
				"confidence":      0.4,
				"unmatched_terms": []any{"y", "x"},
			},
		},
	}}
	o, lastQuery := searchable(t, found)
	cs, _ := stdio(t, o, nil)
	got, failed := invoke(t, cs, "search_tools", m{"queries": []string{"send a mail", "read mail"}})
	if diff := cmp.Diff(want, got); diff != "" || failed {
		t.Errorf("search_tools with two queries: failed %v (-want +got):\n%s", failed, diff)
	}
	if got := lastQuery(); !slices.Equal(got["q"], []string{"send a mail", "read mail"}) || got.Get("limit") != "20" {
		t.Errorf("parameters of the search = %v, want both queries and the limit 20", got)
	}
	for _, c := range []struct {
		args  m
		limit string
	}{
		{m{"query": "x"}, "10"},
		{m{"query": "", "queries": []string{"x"}}, "10"},
		{m{"queries": []string{"x", "y"}, "max_results": 3}, "3"},
		{m{"queries": slices.Repeat([]string{"x"}, 20)}, "50"},
	} {
		if got, failed := invoke(t, cs, "search_tools", c.args); failed || lastQuery().Get("limit") != c.limit {
			t.Errorf("search_tools(%v) = %v, limit %s, want %s", c.args, got, lastQuery().Get("limit"), c.limit)
		}
	}
	for _, c := range []struct {
		args m
		want string
	}{
		{m{}, "a query is empty: describe what the tools should do, in query or in queries"},
		{m{"query": " "}, "a query is empty: describe what the tools should do, in query or in queries"},
		{m{"queries": []string{}}, "0 queries: give 1 to 20"},
		{m{"queries": slices.Repeat([]string{"x"}, 21)}, "21 queries: give 1 to 20"},
		{
			m{"queries": []string{"x", "\t"}},
			"a query is empty: describe what the tools should do, in query or in queries",
		},
		{m{"query": "x", "queries": []string{"y"}}, "give either query or queries, not both"},
		{m{"query": "x", "max_results": 51}, "max_results must be from 1 to 50"},
	} {
		if got, failed := invoke(t, cs, "search_tools", c.args); !failed || got["error"] != c.want ||
			got["error_code"] != "bad_arguments" {
			t.Errorf("search_tools(%v) = %v, want the error %q", c.args, got, c.want)
		}
	}
	long := m{"queries": []string{"x", strings.Repeat("a", 20_000)}}
	if got, failed := invoke(t, cs, "search_tools", long); !failed ||
		got["error"] != "the queries are 20001 bytes; the limit is 20000 (a sentence for each step is enough)" {
		t.Errorf("search_tools with 20001 bytes = %v, want an error with the number", got)
	}
}
