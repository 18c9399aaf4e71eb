package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/text"
)

type noIn struct{}

// listOfNames wraps a list in an object, because older revisions require structured content to be an object. The
// text of the result is the bare list.
type listOfNames struct {
	Result []string `json:"result"`
}

func namesResult(names []string) *result {
	names = append([]string{}, names...) // an empty list, not null
	return &result{out: listOfNames{names}, text: names}
}

type serverIn struct {
	ServerName string `json:"server_name"`
}

type searchIn struct {
	Query       string   `json:"query,omitempty" jsonschema:"what the tools should do"`
	Queries     []string `json:"queries,omitempty" jsonschema:"instead of query: one for each step, at most 20"`
	DetailLevel string   `json:"detail_level,omitempty" jsonschema:"name (default), description, or full"`
	MaxResults  int      `json:"max_results,omitempty" jsonschema:"default 10 a query, at most 50"`
}

const (
	maxQueries      = 20 // limit of queries in one search, as in the fleet
	maxResults      = 50
	resultsPerQuery = 10 // default
)

// list returns the queries of a search.
func (in searchIn) list() ([]string, error) {
	if in.Queries == nil {
		in.Queries = []string{in.Query}
	} else if in.Query != "" {
		return nil, badArgument("give either query or queries, not both")
	}
	if n := len(in.Queries); n == 0 || n > maxQueries {
		return nil, badArgument("%d queries: give 1 to %d", n, maxQueries)
	}
	for _, q := range in.Queries {
		if strings.TrimSpace(q) == "" {
			return nil, badArgument("a query is empty: describe what the tools should do, in query or in queries")
		}
	}
	return in.Queries, nil
}

// toolFound is a tool in the result of search_tools, at the levels description and full.
type toolFound struct {
	Description string `json:"description,omitempty"`
	Code        string `json:"code,omitempty"`
}

// searchNote says how certain a search is. In the result it stands beside the servers, under searchKey.
type searchNote struct {
	Confidence     float64            `json:"confidence" jsonschema:"0 to 1, of the least certain query; low: perhaps no tool fits"`
	UnmatchedTerms []string           `json:"unmatched_terms" jsonschema:"words of the queries that occur in no tool"`
	Queries        []client.ToolQuery `json:"queries,omitempty" jsonschema:"if queries was given: each query with its tools as server/tool, best first"`
	Degraded       string             `json:"degraded,omitempty" jsonschema:"why the search did without the configured embeddings"`
}

// noteOf summarises the queries of a search. With perQuery it also lists each query.
func noteOf(found client.ToolSearch, perQuery bool) searchNote {
	n := searchNote{UnmatchedTerms: []string{}, Degraded: found.Degraded}
	for i, q := range found.Queries {
		if i == 0 || q.Confidence < n.Confidence {
			n.Confidence = q.Confidence
		}
		for _, term := range q.UnmatchedTerms {
			if !slices.Contains(n.UnmatchedTerms, term) {
				n.UnmatchedTerms = append(n.UnmatchedTerms, term)
			}
		}
	}
	if perQuery {
		n.Queries = found.Queries
	}
	return n
}

// searchKey is a name that no server can have.
const searchKey = "_search"

func searchSchema() *jsonschema.Schema {
	s := schemaOf[map[string]any]()
	s.Properties = map[string]*jsonschema.Schema{searchKey: schemaOf[searchNote]()}
	s.Required = []string{searchKey}
	return s
}

func (ts *toolSet) addCatalogue() {
	addTool(ts, tool{
		name: "list_servers", title: "List servers", scope: scopeRead, hints: readsOnly, out: schemaOf[listOfNames](),
		text: "The servers whose tools programs can call.",
	}, func(ctx context.Context, c *call, _ noIn) (*result, error) {
		servers, _, err := c.catalogue(ctx, "")
		return namesResult(servers), err
	})
	addTool(ts, tool{
		name: "get_server_tools", title: "List a server's tools", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[listOfNames](),
		text: "The tools of one server. In a program: from servers.SERVER import TOOL.",
	}, func(ctx context.Context, c *call, in serverIn) (*result, error) {
		if in.ServerName == "" {
			return nil, badArgument("server_name is empty")
		}
		_, tools, err := c.catalogue(ctx, in.ServerName)
		return namesResult(tools[in.ServerName]), err
	})
	addTool(ts, tool{
		name: "list_available_tools", title: "List all tools", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[map[string][]string](),
		text: "The names of all tools, by server. With many of them, search_tools is cheaper.",
	}, func(ctx context.Context, c *call, _ noIn) (*result, error) {
		_, tools, err := c.catalogue(ctx, "")
		return &result{out: tools}, err
	})
	t := tool{
		name: "search_tools", title: "Search tools", scope: scopeRead, compact: true, hints: readsOnly,
		out: searchSchema(),
		text: "Find the few tools for a task, by server. queries, one for each step, finds more than one query " +
			"for all. detail_level name gives names, description a line each with the signature, full also the " +
			"import and the parameters. _search says how certain the search is and, with queries, which tools " +
			"belong to which.",
	}
	if ts.profile == Compact {
		t.text = "Find the few tools for a task. detail_level: name, description, full."
	}
	addTool(ts, t, func(ctx context.Context, c *call, in searchIn) (*result, error) { return c.search(ctx, in) })
}

// catalogue returns the servers, in order, and the tools of each that a program may call.
func (c *call) catalogue(ctx context.Context, server string) (servers []string, tools map[string][]string, err error) {
	list, err := c.fleet.Tools(ctx, client.ToolsOptions{Server: server, Detail: client.DetailName})
	if err != nil {
		return nil, nil, err
	}
	tools = map[string][]string{}
	for _, t := range list.Tools {
		if t.State == "pending" || t.State == "changed" {
			continue
		}
		if tools[t.Server] == nil {
			servers = append(servers, t.Server)
		}
		tools[t.Server] = append(tools[t.Server], t.Name)
	}
	return servers, tools, nil
}

func (c *call) search(ctx context.Context, in searchIn) (*result, error) {
	level := client.Detail(in.DetailLevel)
	switch level {
	case "":
		level = client.DetailName
	case client.DetailName, client.DetailDescription, client.DetailFull:
	default:
		return nil, badArgument("unknown detail_level %q: want one of name, description, full", in.DetailLevel)
	}
	if in.MaxResults < 0 || in.MaxResults > maxResults {
		return nil, badArgument("max_results must be from 1 to %d", maxResults)
	}
	queries, err := in.list()
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(in.MaxResults, min(resultsPerQuery*len(queries), maxResults))
	found, err := c.fleet.SearchTools(ctx, client.SearchToolsOptions{Detail: level, Limit: limit}, queries...)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, g := range found.Servers {
		names, full := []string{}, map[string]toolFound{}
		for _, t := range g.Tools {
			names = append(names, t.Tool)
			full[t.Tool] = describe(g.Server, t, level)
		}
		if out[g.Server] = full; level == client.DetailName {
			out[g.Server] = names
		}
	}
	out[searchKey] = noteOf(found, in.Queries != nil)
	return &result{out: out}, nil
}

// describe returns a tool in the form in which a program calls it.
func describe(server string, t client.ToolMatch, level client.Detail) toolFound {
	line := strings.TrimSpace(t.Description)
	if level == client.DetailDescription {
		return toolFound{Description: strings.TrimSpace(t.Signature + "  # " + line)}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "from servers.%s import %s\n\n# %s\n", server, t.Tool, t.Signature)
	for _, p := range t.Params {
		fmt.Fprintf(&b, "#   %s: %s", p.Name, p.Type)
		if !p.Required {
			b.WriteString(", optional")
		}
		if len(p.Enum) > 0 {
			fmt.Fprintf(&b, ", one of %s", strings.Join(p.Enum, ", "))
		}
		if p.Description != "" {
			b.WriteString("  " + text.OneLine(p.Description))
		}
		b.WriteString("\n")
	}
	return toolFound{Description: line, Code: b.String()}
}
