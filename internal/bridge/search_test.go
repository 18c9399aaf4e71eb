package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/bridge"
	"github.com/codefleet/codefleet/schemas"
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
	if got := lastQuery(); !slices.Equal(got["q"], []string{"send a mail", "read mail"}) || got.Get("limit") != "10" {
		t.Errorf("parameters of the search = %v, want both queries and the limit 10", got)
	}
	for _, c := range []struct {
		args  m
		limit string
	}{
		{m{"query": "x"}, "10"},
		{m{"query": "", "queries": []string{"x"}}, "10"},
		{m{"queries": []string{"x", "y"}, "max_results": 3}, "3"},
		{m{"queries": slices.Repeat([]string{"x"}, 20)}, "10"},
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
		{m{"query": "x", "max_results": 21}, "max_results must be from 1 to 20"},
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

// manyCalls is a task of fleetWithTools with more audit records than a response of the fleet.
const manyCalls = "bbbbbbbbbbbbbbbbbbbbbbbbbb"

// fleetWithTools starts a fleet with these tools.
func fleetWithTools(t *testing.T, tools ...client.Tool) bridge.Options {
	t.Helper()
	respond := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/whoami", respond(client.Identity{Tenant: "t", Scopes: []string{"read", "submit"}}))
	mux.HandleFunc("GET /v1/tools", respond(client.ToolList{Tools: tools}))
	mux.HandleFunc("GET /v1/tasks/{id}", respond(client.Record{Status: client.Succeeded}))
	mux.HandleFunc("GET /v1/audit", func(w http.ResponseWriter, r *http.Request) {
		records := []client.AuditRecord{
			{Event: schemas.AuditEnd, Server: "map", Tool: "show-map"},
			{Event: schemas.AuditEnd, Server: "map", Tool: "gone-by"},
		}
		if r.URL.Query().Get("task") == manyCalls {
			records = append(records, make([]client.AuditRecord, 998)...)
		}
		respond(records)(w, r)
	})
	mux.HandleFunc("POST /v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		var task client.Submission
		if err := json.NewDecoder(r.Body).Decode(&task); err != nil || task.Tools == nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		output := strings.Join(task.Tools.Allow, " ")
		respond(client.Record{
			TaskID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Status: client.Succeeded, Result: &client.Result{Output: output},
		})(w, r)
	})
	fleet := httptest.NewServer(mux)
	t.Cleanup(fleet.Close)
	return bridge.Options{Fleet: client.Options{URL: fleet.URL, Token: "x"}}
}

// TestNamesAreThoseOfImports checks that every list has the names that programs import, that both these and those of
// the MCP servers are accepted, and that a wrong name gets the nearest one and no advice to type a command.
func TestNamesAreThoseOfImports(t *testing.T) {
	type m = map[string]any
	tool := func(server, name, imported string) client.Tool {
		return client.Tool{ID: server + "/" + name, Server: server, Name: name, State: "approved", Import: imported}
	}
	cs, _ := stdio(t, fleetWithTools(t,
		tool("k8s-go", "pods-list", "from servers.k8s_go import pods_list"),
		tool("map", "geocode", "from servers.map_ import geocode"),
		tool("map", "show-map", "from servers.map_ import show_map"),
	), nil)
	for _, c := range []struct {
		tool string
		args m
		want any
	}{
		{"list_servers", nil, m{"result": []any{"k8s_go", "map_"}}},
		{"get_server_tools", m{"server_name": "map_"}, m{"result": []any{"geocode", "show_map"}}},
		{"get_server_tools", m{"server_name": "k8s-go"}, m{"result": []any{"pods_list"}}},
		{"list_available_tools", nil, m{"k8s_go": []any{"pods_list"}, "map_": []any{"geocode", "show_map"}}},
	} {
		got, failed := invoke(t, cs, c.tool, c.args)
		if diff := cmp.Diff(c.want, any(got)); diff != "" || failed {
			t.Errorf("%s(%v): failed %v (-want +got):\n%s", c.tool, c.args, failed, diff)
		}
	}
	for task, truncated := range map[string]any{"aaaaaaaaaaaaaaaaaaaaaaaaaa": nil, manyCalls: true} {
		calls, _ := invoke(t, cs, "list_tool_calls", m{"task_id": task})
		var called []any
		for _, item := range calls["items"].([]any) {
			called = append(called, item.(m)["tool"])
		}
		want := []any{"map/gone-by", "map_/show_map"}
		if !cmp.Equal(called, want) || calls["truncated"] != truncated {
			t.Errorf("list_tool_calls(%s) = %v, truncated %v; want %v, truncated %v",
				task, called, calls["truncated"], want, truncated)
		}
	}
	for name, want := range map[string]string{
		"maps":     `unknown server "maps"; did you mean map_? (list_servers lists the servers)`,
		"zeppelin": `unknown server "zeppelin"; valid servers: k8s_go, map_ (list_servers lists the servers)`,
	} {
		got, failed := invoke(t, cs, "get_server_tools", m{"server_name": name})
		if !failed || got["error"] != want || got["error_code"] != "unknown_tool" {
			t.Errorf("get_server_tools(%s) = %v, want the error %q", name, got, want)
		}
	}
	task := m{"code": "1", "tools": []string{"map_/show_map", "k8s_go/*", "map/geocode", "no/such"}}
	const want = "map/show-map k8s-go/* map/geocode no/such"
	if got, failed := invoke(t, cs, "execute_task", task); failed || got["output"] != want {
		t.Errorf("execute_task: the fleet got the tools %v, want %s", got["output"], want)
	}
}

// TestFull checks that the level full has an import that works and the members of nested arguments.
func TestFull(t *testing.T) {
	const types = "class ShowMapPointsItem(TypedDict, total=False):\n    lat: float  # degrees north"
	o, _ := searchable(t, client.ToolSearch{
		Servers: []client.ToolGroup{{Server: "map", Tools: []client.ToolMatch{{
			ID: "map/show-map", Tool: "show-map", Import: "from servers.map_ import show_map", Types: types,
			Signature: "show_map(points: List[ShowMapPointsItem]) -> Any", Description: "Show a map.",
			Params: []client.ToolParam{
				{Name: "points", Type: "List[ShowMapPointsItem]", Required: true},
				{Name: "city", Type: `Literal["it's", "None"]`, Enum: []string{"São", "it's", "a  b", "None"}},
				{Name: "zoom", Type: "Any", Enum: []string{"0.5", "1", "None", "[None]", ", \n\u200b"}},
				{Name: "level", Type: "str", Enum: []string{"1", "True"}},
			},
		}}}},
		Queries: []client.ToolQuery{{Query: "x", Tools: []string{"map/show-map"}, UnmatchedTerms: []string{}}},
	})
	cs, _ := stdio(t, o, nil)
	got, _ := invoke(t, cs, "search_tools", map[string]any{"queries": []string{"x"}, "detail_level": "full"})
	want := map[string]any{"show_map": map[string]any{
		"description": "Show a map.",
		"code": "from servers.map_ import show_map\n\n# show_map(points: List[ShowMapPointsItem]) -> Any\n" +
			"#   points: List[ShowMapPointsItem]\n" +
			`#   city: Literal["it's", "None"], optional, one of "São", "it's", "a  b", "None"` + "\n" +
			`#   zoom: Any, optional, one of 0.5, 1, None, [None], ", \n\u200b"` + "\n" +
			`#   level: str, optional, one of "1", "True"` + "\n\n" +
			"# The types of its arguments and result, which are dictionaries:\n" + types + "\n",
	}}
	if diff := cmp.Diff(any(want), got["map_"]); diff != "" {
		t.Errorf("search_tools, level full (-want +got):\n%s", diff)
	}
	queries, _ := got["_search"].(map[string]any)["queries"].([]any)
	if tools := queries[0].(map[string]any)["tools"]; !cmp.Equal(tools, []any{"map_/show_map"}) {
		t.Errorf("tools of the query = %v, want map_/show_map", tools)
	}
}

// TestListsFit checks that no list exceeds the limit of a result, and that a shortened list says so.
func TestListsFit(t *testing.T) {
	const limit = 20_000
	long, controls := strings.Repeat("long ", 600), strings.Repeat("\x01", 900)
	found := client.ToolSearch{}
	var all []client.Tool
	for s := range 20 {
		server := fmt.Sprintf("server%02d", s)
		group, query := client.ToolGroup{Server: server}, client.ToolQuery{Query: controls}
		for i := range 20 + 30*s {
			name := fmt.Sprintf("a_tool_with_a_name_that_is_long_%d", i)
			tool := client.Tool{ID: server + "/" + name, Server: server, Name: name}
			all = append(all, tool)
			if i < 20 {
				group.Tools = append(group.Tools, client.ToolMatch{
					ID: tool.ID, Tool: name, Signature: name + "(x: T) -> U", Description: long, Types: long,
				})
				query.Tools = append(query.Tools, tool.ID)
				query.UnmatchedTerms = append(query.UnmatchedTerms, controls+name)
			}
		}
		found.Servers, found.Queries = append(found.Servers, group), append(found.Queries, query)
	}
	o, _ := searchable(t, found)
	searching, _ := stdio(t, o, nil)
	listing, _ := stdio(t, fleetWithTools(t, all...), nil)
	type m = map[string]any
	for _, c := range []struct {
		cs    *mcp.ClientSession
		tool  string
		args  m
		short func(m) bool // the result says that it is incomplete
	}{
		{searching, "search_tools", m{"queries": slices.Repeat([]string{"x"}, 20), "detail_level": "name"}, shortened},
		{searching, "search_tools", m{"query": "x", "detail_level": "description"}, shortened},
		{searching, "search_tools", m{"query": "x", "detail_level": "full"}, shortened},
		{listing, "list_available_tools", nil, func(r m) bool { return len(r["_truncated"].([]any)) > 0 }},
		{
			listing, "get_server_tools",
			m{"server_name": "server19"},
			func(r m) bool { return r["more"].(float64) > 0 },
		},
	} {
		r, err := c.cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := r.Content[0].(*mcp.TextContent)
		got, _ := r.StructuredContent.(m)
		if n := len(text.Text); n > limit || n < limit/4 || !c.short(got) {
			t.Errorf("%s(%v): %d bytes, want %d to %d and a note; note %v", c.tool, c.args, n, limit/4, limit,
				got["_search"])
		}
	}
}

func shortened(result map[string]any) bool {
	note, _ := result["_search"].(map[string]any)
	text, _ := note["shortened"].(string)
	return strings.Contains(text, "search for fewer things")
}
