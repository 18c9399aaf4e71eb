package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

type noIn struct{}

// listOfNames wraps a list in an object, because older MCP revisions require structured content to be an object. The
// text of the result is the bare list, unless the list is incomplete.
type listOfNames struct {
	Result []string `json:"result"`
	More   int      `json:"more,omitempty" jsonschema:"further names, which do not fit; search_tools finds them"`
}

// namesResult returns as many of the names as fit.
func (c *call) namesResult(names []string) *result {
	size, n := len(`{"result":[],"more":10000}`), 0
	for ; n < len(names); n++ {
		if size += len(names[n]) + len(`"",`); size > c.b.o.MaxOutput {
			break
		}
	}
	list := listOfNames{Result: append([]string{}, names[:n]...), More: len(names) - n}
	if list.More > 0 {
		return &result{out: list}
	}
	return &result{out: list, text: list.Result}
}

type serverIn struct {
	ServerName string `json:"server_name"`
}

func (ts *toolSet) addCatalogue() {
	addTool(ts, tool{
		name: "list_servers", title: "List servers", scope: scopeRead, hints: readsOnly, out: schemaOf[listOfNames](),
		text: "The servers whose tools programs can call, as programs import them.",
	}, func(ctx context.Context, c *call, _ noIn) (*result, error) {
		servers, err := c.catalogue(ctx)
		return c.namesResult(packages(servers)), err
	})
	addTool(ts, tool{
		name: "get_server_tools", title: "List a server's tools", scope: scopeRead, hints: readsOnly,
		out:  schemaOf[listOfNames](),
		text: "The tools of one server. In a program: from servers.SERVER import TOOL.",
	}, func(ctx context.Context, c *call, in serverIn) (*result, error) {
		return c.serverTools(ctx, in.ServerName)
	})
	addTool(ts, tool{
		name: "list_available_tools", title: "List all tools", scope: scopeRead, hints: readsOnly,
		out: schemaOf[map[string][]string](),
		text: "The names of all tools, by server. With many of them, search_tools is cheaper. " + truncatedKey +
			" has the servers whose tools do not fit: call get_server_tools.",
	}, func(ctx context.Context, c *call, _ noIn) (*result, error) {
		servers, err := c.catalogue(ctx)
		return &result{out: allTools(servers, c.b.o.MaxOutput)}, err
	})
	t := tool{
		name: "search_tools", title: "Search tools", scope: scopeRead, compact: true, hints: readsOnly,
		out: searchSchema(),
		text: "Find the few tools for a task, by server. With queries (one for each step) it finds more than " +
			"with a single query for all steps. detail_level name gives names, description a line each with the " +
			"signature, full also the import and the parameters. _search says how certain the search is and, with " +
			"queries, which tools belong to which.",
	}
	if ts.profile == Compact {
		t.text = "Find the few tools for a task. detail_level: name, description, full."
	}
	addTool(ts, t, func(ctx context.Context, c *call, in searchIn) (*result, error) { return c.search(ctx, in) })
}

// server is a server of the catalogue, under the names that programs import.
type server struct {
	name, pkg string // the name of the MCP server, and of its Python package
	tools     []string
	ids       []string // ids of the tools, as server/tool
}

// catalogue returns the servers with the tools that a program may call, in order.
func (c *call) catalogue(ctx context.Context) ([]server, error) {
	list, err := c.fleet.Tools(ctx, client.ToolsOptions{Detail: client.DetailName})
	if err != nil {
		return nil, err
	}
	var servers []server
	for _, t := range list.Tools {
		if t.State == "pending" || t.State == "changed" {
			continue
		}
		pkg, function := importNames(t.Import, t.Server, t.Name)
		if n := len(servers); n == 0 || servers[n-1].name != t.Server {
			servers = append(servers, server{name: t.Server, pkg: pkg})
		}
		s := &servers[len(servers)-1]
		s.tools, s.ids = append(s.tools, function), append(s.ids, t.ID)
	}
	return servers, nil
}

// importNames returns the package and the function of an import such as "from servers.map_ import show_map". They may
// differ from the names of the MCP server and its tool, which it returns if the statement has a different form.
func importNames(statement, server, tool string) (pkg, function string) {
	rest, ok := strings.CutPrefix(statement, "from servers.")
	if pkg, function, found := strings.Cut(rest, " import "); ok && found {
		return pkg, function
	}
	return server, tool
}

func packages(servers []server) []string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.pkg
	}
	return names
}

// serverTools lists the tools of a server. name is the name of its Python package or of the MCP server.
func (c *call) serverTools(ctx context.Context, name string) (*result, error) {
	if name == "" {
		return nil, badArgument("server_name is empty")
	}
	servers, err := c.catalogue(ctx)
	if err != nil {
		return nil, err
	}
	for _, nameOf := range []func(server) string{
		func(s server) string { return s.pkg }, func(s server) string { return s.name },
	} {
		if i := slices.IndexFunc(servers, func(s server) bool { return nameOf(s) == name }); i >= 0 {
			return c.namesResult(servers[i].tools), nil
		}
	}
	return nil, unknownServer(name, packages(servers))
}

// maxSuggested bounds how many names an error lists.
const maxSuggested = 20

func unknownServer(name string, all []string) error {
	message := fmt.Sprintf("unknown server %q", text.Truncate(text.Printable(name), maxSummary))
	switch nearest := text.Nearest(name, all, max(2, len(name)/3)); {
	case nearest != "":
		message += fmt.Sprintf("; did you mean %s?", nearest)
	case len(all) > maxSuggested:
		message += "; valid servers include " + strings.Join(all[:maxSuggested], ", ")
	case len(all) > 0:
		message += "; valid servers: " + strings.Join(all, ", ")
	}
	return &client.APIError{Code: errcode.UnknownTool, Message: message, Hint: "list_servers lists the servers"}
}

// truncatedKey is a name that no server can have.
const truncatedKey = "_truncated"

// allTools returns the tools by server in at most limit bytes of JSON. truncatedKey has the servers whose tools do
// not fit, which are the servers with the longest lists.
func allTools(servers []server, limit int) map[string][]string {
	out := map[string][]string{}
	size := 2
	for _, s := range servers {
		out[s.pkg] = s.tools
		size += namesSize(s)
	}
	bySize := slices.SortedStableFunc(slices.Values(servers), func(a, b server) int {
		return cmp.Compare(namesSize(b), namesSize(a))
	})
	for _, s := range bySize {
		if size <= limit {
			break
		}
		if out[truncatedKey] == nil {
			size += len(truncatedKey) + len(`"":[],`)
		}
		delete(out, s.pkg)
		out[truncatedKey] = append(out[truncatedKey], s.pkg)
		size -= namesSize(s) - len(s.pkg) - len(`"",`)
	}
	slices.Sort(out[truncatedKey])
	return out
}

// namesSize returns the size of a server and its tools in JSON.
func namesSize(s server) int {
	size := len(s.pkg) + len(`"":[],`)
	for _, t := range s.tools {
		size += len(t) + len(`"",`)
	}
	return size
}

// toolIDs converts an allow-list for the fleet: it replaces the names of Python modules with those of MCP servers and
// their tools. It keeps unknown patterns, which the fleet reports.
func (c *call) toolIDs(ctx context.Context, allow []string) ([]string, error) {
	servers, err := c.catalogue(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, s := range servers {
		ids[s.pkg+"/*"] = s.name + "/*"
		for i, t := range s.tools {
			ids[s.pkg+"/"+t] = s.ids[i]
		}
	}
	for _, s := range servers { // names of MCP servers take precedence
		ids[s.name+"/*"] = s.name + "/*"
		for _, id := range s.ids {
			ids[id] = id
		}
	}
	out := make([]string, len(allow))
	for i, pattern := range allow {
		out[i] = cmp.Or(ids[pattern], pattern)
	}
	return out, nil
}
