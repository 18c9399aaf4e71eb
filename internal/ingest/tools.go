package ingest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/schemas"
)

// Tools is the catalogue of each tenant: the fleet's tools, and the tools that the tenant's processes register.
type Tools interface {
	Read(ctx context.Context, tenant string) (*tools.Listing, error)
	// All also returns the tools that the tenant may not call.
	All(ctx context.Context, tenant string) (*tools.Listing, error)
	Search(ctx context.Context, tenant string, r selection.Request) (selection.Response, error)
}

// maxToolQueries is the limit of queries in one search.
const maxToolQueries = 20

func (s *Server) readTools(r *http.Request) (*tools.Listing, error) {
	if s.o.Tools == nil {
		return nil, noTools()
	}
	return s.o.Tools.Read(r.Context(), identityOf(r.Context()).tenant)
}

func noTools() error {
	e := apierror.New(errcode.NoTools, "this process has no catalogue of tools")
	e.Hint = "set s3.endpoint or execution.servers_dir"
	return e
}

// getTools lists the catalogue.
func (s *Server) getTools(w http.ResponseWriter, r *http.Request) error {
	detail, err := detailOf(r)
	if err != nil {
		return err
	}
	listing, err := s.readTools(r)
	if err != nil {
		return err
	}
	server := r.URL.Query().Get("server")
	if server != "" {
		if err := listing.CheckServer(server); err != nil {
			return unknownTool(err)
		}
	}
	onlyExposed, err := flagOf(r, "exposed")
	if err != nil {
		return err
	}
	list := ListTools(listing, server, detail)
	if onlyExposed {
		exposed := slices.DeleteFunc(slices.Clone(listing.Tools), func(t tools.Tool) bool { return !t.Exposed })
		list = ListTools(tools.NewListing(exposed), server, detail)
		list.Servers = nil
	}
	return respond(w, list, nil)
}

// ListTools returns the response to GET /v1/tools. An empty server means all servers.
func ListTools(listing *tools.Listing, server string, detail selection.Detail) schemas.ToolList {
	out := schemas.ToolList{Tools: []schemas.Tool{}, Broken: []schemas.BrokenTool{}, Warnings: []schemas.ToolWarning{}}
	for _, t := range listing.Tools {
		if server == "" || server == t.Server {
			out.Tools = append(out.Tools, DescribeTool(t, detail))
			out.Servers = describeServer(out.Servers, t, detail)
		}
	}
	for _, b := range listing.Broken {
		out.Broken = append(out.Broken, schemas.BrokenTool(b))
	}
	for _, f := range listing.Warnings {
		if server == "" || strings.HasPrefix(f.Tool, server+"/") {
			out.Warnings = append(out.Warnings, schemas.ToolWarning(f))
		}
	}
	return out
}

// DescribeTool returns a tool as the HTTP interface describes it.
func DescribeTool(t tools.Tool, detail selection.Detail) schemas.Tool {
	out := schemas.Tool{ID: t.ID(), Server: t.Server, Name: t.Name, State: string(t.State), Import: t.Import()}
	if detail == selection.DetailName {
		return out
	}
	out.Signature, out.Description = t.Signature, t.Summary()
	if detail != selection.DetailFull {
		return out
	}
	out.Description = cmp.Or(t.Description, t.Doc)
	out.Module, out.Function, out.Path, out.Title, out.Hash = t.Module, t.Function, t.Path, t.Title, t.Hash
	out.Exposed, out.Types = t.Exposed, t.Types
	out.InputSchema, out.OutputSchema = tools.PrintableSchema(t.InputSchema), tools.PrintableSchema(t.OutputSchema)
	if t.Annotations != (tools.Annotations{}) {
		a := schemas.ToolAnnotations(t.Annotations)
		out.Annotations = &a
	}
	return out
}

// describeServer appends the server of a tool to the list if detail is full, unless the list ends with it or it has no
// description.
func describeServer(list []schemas.ToolServer, t tools.Tool, detail selection.Detail) []schemas.ToolServer {
	n := len(list)
	if detail != selection.DetailFull || t.About == (tools.About{}) || n > 0 && list[n-1].Server == t.Server {
		return list
	}
	a := t.About
	return append(list, schemas.ToolServer{
		Server: t.Server, Version: a.Version, Title: a.Title, Description: a.Description, Instructions: a.Instructions,
	})
}

// getTool responds with the whole definition of one tool.
func (s *Server) getTool(w http.ResponseWriter, r *http.Request) error {
	listing, err := s.readTools(r)
	if err != nil {
		return err
	}
	t, err := listing.Lookup(r.PathValue("server"), r.PathValue("tool"))
	if err != nil {
		return unknownTool(err)
	}
	return respond(w, DescribeTool(t, selection.DetailFull), nil)
}

func unknownTool(err error) error {
	e := apierror.New(errcode.UnknownTool, "%v", err)
	e.Hint = "GET /v1/tools lists the tools"
	return e
}

// searchTools finds the tools for one or several queries. It ranks them as the selection for tasks does.
func (s *Server) searchTools(w http.ResponseWriter, r *http.Request) error {
	detail, err := detailOf(r)
	if err != nil {
		return err
	}
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	explain, err := flagOf(r, "explain")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	search := selection.Request{Queries: q["q"], Detail: detail, Explain: explain}
	if q.Has("limit") {
		search.Limit = limit
	}
	if n := len(search.Queries); n == 0 || n > maxToolQueries ||
		strings.TrimSpace(strings.Join(search.Queries, "")) == "" {
		return badParameter("q", "it must describe what the tools should do, and may be repeated up to 20 times")
	}
	if n := len(strings.Join(search.Queries, "")); n > schemas.MaxToolQueryBytes {
		return badParameter("q", fmt.Sprintf("the queries are %d bytes; the limit is %d; "+
			"a sentence for each step is enough", n, schemas.MaxToolQueryBytes))
	}
	if _, err := s.readTools(r); err != nil {
		return err
	}
	found, err := s.o.Tools.Search(r.Context(), identityOf(r.Context()).tenant, search)
	return respond(w, FoundTools(found), err)
}

// FoundTools returns the response to GET /v1/tools/search.
func FoundTools(r selection.Response) schemas.ToolSearch {
	out := schemas.ToolSearch{
		Servers: []schemas.ToolGroup{}, Available: r.Available, Share: r.Share,
		Queries: []schemas.ToolQuery{}, Degraded: r.Degraded,
	}
	for _, q := range r.Queries {
		out.Queries = append(out.Queries, schemas.ToolQuery(q))
	}
	for _, g := range r.Servers {
		group := schemas.ToolGroup{Server: g.Server, Tools: []schemas.ToolMatch{}, More: g.More}
		for _, h := range g.Tools {
			match := schemas.ToolMatch{
				ID: h.ID, Tool: h.Tool, Score: h.Score, Import: h.Import, Signature: h.Signature,
				Description: h.Description,
			}
			if h.Why != nil {
				why := schemas.ToolReasons(*h.Why)
				match.Why = &why
			}
			if h.Definition != nil {
				match.Types = h.Definition.Types
				match.Params = make([]schemas.ToolParam, len(h.Definition.Params))
				for i, p := range h.Definition.Params {
					match.Params[i] = schemas.ToolParam(p)
				}
			}
			group.Tools = append(group.Tools, match)
		}
		out.Servers = append(out.Servers, group)
	}
	return out
}

// detailOf reads ?detail=. The default is one line for each tool.
func detailOf(r *http.Request) (selection.Detail, error) {
	switch d := selection.Detail(cmp.Or(r.URL.Query().Get("detail"), string(selection.DetailDescription))); d {
	case selection.DetailName, selection.DetailDescription, selection.DetailFull:
		return d, nil
	}
	return "", badParameter("detail", "it must be name, description or full")
}
