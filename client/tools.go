package client

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Types for the tool catalogue. Package schemas documents their fields.
type (
	// Tool is one tool of the catalogue.
	Tool = schemas.Tool
	// ToolAnnotations declare a tool's effects.
	ToolAnnotations = schemas.ToolAnnotations
	// ToolList lists the tools of the catalogue or of one server.
	ToolList = schemas.ToolList
	// ToolServer is how an MCP server describes itself.
	ToolServer = schemas.ToolServer
	// ToolSearch is the outcome of a search.
	ToolSearch = schemas.ToolSearch
	// ToolGroup lists the matching tools of one server.
	ToolGroup = schemas.ToolGroup
	// ToolQuery is one query of a search, with its confidence.
	ToolQuery = schemas.ToolQuery
	// ToolMatch is a tool that matches a query.
	ToolMatch = schemas.ToolMatch
	// ToolParam is one parameter of a ToolMatch.
	ToolParam = schemas.ToolParam
)

// Detail selects how much of each tool a response contains.
type Detail string

// The levels of detail. An empty Detail selects DetailDescription.
const (
	DetailName        Detail = "name"        // ids and imports
	DetailDescription Detail = "description" // one line: signature and summary
	DetailFull        Detail = "full"        // the whole definition
)

// ToolsOptions filter a list of tools.
type ToolsOptions struct {
	Server  string // only tools of this server; empty selects all servers
	Exposed bool   // only tools that were registered with ToolInfo.Expose
	Detail  Detail
}

// SearchToolsOptions configure a search.
type SearchToolsOptions struct {
	Detail  Detail
	Limit   int  // maximum number of tools for each query; default and maximum 20
	Explain bool // whether to return how the rank of each tool was computed
}

// Tools returns the tools that the caller's tenant may call: those of the fleet, and those that the tenant's processes
// have registered. For an unknown server the error has the code "unknown_tool". Over NATS, Tools, SearchTools and
// ReadTool fail with the code "http_only".
func (c *Client) Tools(ctx context.Context, o ToolsOptions) (ToolList, error) {
	q := url.Values{}
	set(q, "server", o.Server)
	set(q, "detail", string(o.Detail))
	if o.Exposed {
		q.Set("exposed", "true")
	}
	return get[ToolList](ctx, c, q, "tools")
}

// SearchTools returns the tools that match the queries: at most 20 queries, with at most 20,000 bytes in all. It
// selects tools as the fleet does for tasks. One query for each step finds more than a single query for all steps. The
// order depends on the queries, the catalogue, the fleet's embeddings, and the tools that the tenant's earlier tasks
// used.
func (c *Client) SearchTools(ctx context.Context, o SearchToolsOptions, queries ...string) (ToolSearch, error) {
	if n := len(strings.Join(queries, "")); n > schemas.MaxToolQueryBytes {
		return ToolSearch{}, &APIError{
			Code: errcode.BadParameter, Status: http.StatusBadRequest, Hint: "a sentence for each step is enough",
			Message: fmt.Sprintf("the queries are %d bytes; the limit is %d", n, schemas.MaxToolQueryBytes),
		}
	}
	q := url.Values{"q": queries}
	set(q, "detail", string(o.Detail))
	setLimit(q, o.Limit)
	if o.Explain {
		q.Set("explain", "true")
	}
	return get[ToolSearch](ctx, c, q, "tools", "search")
}

// ReadTool returns the definition of one tool. For an unknown tool the error has the code "unknown_tool", and its
// message names the nearest tool.
func (c *Client) ReadTool(ctx context.Context, server, name string) (Tool, error) {
	if !fs.ValidPath(server + "/" + name) {
		return Tool{}, &APIError{
			Code: errcode.UnknownTool, Status: http.StatusNotFound,
			Message: "no tool " + strconv.Quote(server+"/"+name),
		}
	}
	return get[Tool](ctx, c, nil, "tools", server, name)
}

// set sets a parameter unless the value is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setLimit(q url.Values, limit int) {
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
}
