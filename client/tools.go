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

// The shapes of the catalogue of tools; package schemas documents their fields.
type (
	// Tool is one tool of the catalogue.
	Tool = schemas.Tool
	// ToolAnnotations are a tool's own claims about its effects.
	ToolAnnotations = schemas.ToolAnnotations
	// ToolList is the catalogue, or one server of it.
	ToolList = schemas.ToolList
	// ToolServer is what an MCP server says of itself.
	ToolServer = schemas.ToolServer
	// ToolSearch is what a search found.
	ToolSearch = schemas.ToolSearch
	// ToolGroup is the found tools of one server.
	ToolGroup = schemas.ToolGroup
	// ToolQuery says how well one query was understood.
	ToolQuery = schemas.ToolQuery
	// ToolMatch is one found tool.
	ToolMatch = schemas.ToolMatch
)

// Detail says how much of each tool an answer carries.
type Detail string

// The levels of detail. Empty is DetailDescription.
const (
	DetailName        Detail = "name"        // ids only
	DetailDescription Detail = "description" // one line: signature and summary
	DetailFull        Detail = "full"        // the whole definition
)

// ToolsOptions narrows a list of tools.
type ToolsOptions struct {
	Server  string // of this server only
	Exposed bool   // those only that registered with ToolInfo.Expose
	Detail  Detail
}

// SearchToolsOptions says how a search is made.
type SearchToolsOptions struct {
	Detail  Detail
	Limit   int  // tools at most; 0 is 20 for each query
	Explain bool // say what each tool's place is made of
}

// Tools returns the catalogue as the caller's tenant sees it: the tools of the fleet and those that
// the tenant's own processes have registered, as far as the tenant may call them. An unknown server is an *APIError with the code
// "unknown_tool". It and the other methods for the catalogue are served over HTTP only.
func (c *Client) Tools(ctx context.Context, o ToolsOptions) (ToolList, error) {
	q := url.Values{}
	set(q, "server", o.Server)
	set(q, "detail", string(o.Detail))
	if o.Exposed {
		q.Set("exposed", "true")
	}
	var list ToolList
	return list, c.door.get(ctx, &list, q, "v1", "tools")
}

// SearchTools finds the few tools for the given queries (20 at most, of 20,000 bytes together) as a task's description
// does. A caller that knows its steps does better with one query a step. The order depends on the queries, the
// catalogue, the embeddings of the fleet, and on what the tenant's tasks used before.
func (c *Client) SearchTools(ctx context.Context, o SearchToolsOptions, queries ...string) (ToolSearch, error) {
	if n := len(strings.Join(queries, "")); n > schemas.MaxToolQueryBytes {
		return ToolSearch{}, &APIError{
			Code: errcode.BadParameter, Message: fmt.Sprintf("the queries have %d bytes, more than %d", n, schemas.MaxToolQueryBytes), Status: http.StatusBadRequest,
			Hint: "a sentence for each step is enough",
		}
	}
	q := url.Values{"q": queries}
	set(q, "detail", string(o.Detail))
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Explain {
		q.Set("explain", "true")
	}
	var found ToolSearch
	return found, c.door.get(ctx, &found, q, "v1", "tools", "search")
}

// ReadTool returns all that is known of one tool. An unknown one is an *APIError with the code
// "unknown_tool", whose message names the nearest.
func (c *Client) ReadTool(ctx context.Context, server, name string) (Tool, error) {
	if !fs.ValidPath(server + "/" + name) {
		return Tool{}, &APIError{Code: errcode.UnknownTool, Message: "no tool " + strconv.Quote(server+"/"+name), Status: http.StatusNotFound}
	}
	var t Tool
	return t, c.door.get(ctx, &t, nil, "v1", "tools", server, name)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
