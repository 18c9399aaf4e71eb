package ingest

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// handler responds to a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is one row of the table: what the mux serves and what the OpenAPI document describes. The methods that set or
// add something return a changed copy.
type route struct {
	pattern string // a pattern of http.ServeMux; without a method, it matches all methods
	scope   string // the scope that the token needs, or anyScope, or public
	handle  handler

	id, summary, description string
	params                   []string // the parameters that are not in the path; keys of the map parameters
	bodies                   []content
	responses                []response
	errors                   codeList
	statuses                 map[string]int // by error code: a status that differs from the usual one of the code
	verbs                    []string       // the HTTP methods, if the pattern does not contain one
}

type content struct{ media, schema string }

type response struct {
	status int
	content
}

// codeList is a list of error codes.
type codeList []string

// Error codes that several routes have in common.
var (
	bodyErrors = codeList{
		errcode.BadBody, errcode.BodyTimeout, errcode.TooLarge, errcode.BadMediaType, errcode.BadJSON,
		errcode.BadData,
	}
	queueErrors  = codeList{errcode.Unavailable, errcode.Stopping}
	submitErrors = codeList{
		errcode.BadEvent, errcode.BadName, errcode.BadReplyTo, errcode.Expired, errcode.TenantMismatch,
		errcode.UnknownTenant, errcode.NotAllowed, errcode.OtherData, errcode.BacklogFull, errcode.StorageFull,
		errcode.TooLarge, errcode.BadStateFile,
	}
	toolErrors      = codeList{errcode.NoTools, errcode.Unavailable, errcode.Stopping}
	storeErrors     = append(codeList{errcode.NoWorkspaces, errcode.Corrupt, errcode.NoKey}, queueErrors...)
	workspaceErrors = append(codeList{
		errcode.BadName, errcode.BadPath, errcode.UnknownPin, errcode.UnknownVersion, errcode.WorkspaceDeleted,
	}, storeErrors...)
	commitErrors = codeList{errcode.Conflict, errcode.QuotaExceeded}
)

// row returns a route. id and summary are its operationId and summary in the OpenAPI document.
func row(pattern, scope string, h handler, id, summary string) route {
	return route{pattern: pattern, scope: scope, handle: h, id: id, summary: summary}
}

// note sets the description of the route in the OpenAPI document.
func (r route) note(text string) route {
	r.description = text
	return r
}

func (r route) takes(names ...string) route {
	r.params = names
	return r
}

// body adds a media type of the request body, and the errors that reading a body can cause.
func (r route) body(media, schema string) route {
	r.bodies = append(slices.Clone(r.bodies), content{media, schema})
	return r.fails(bodyErrors...)
}

func (r route) returns(status int, schema string) route {
	return r.returnsMedia(status, "application/json", schema)
}

func (r route) returnsMedia(status int, media, schema string) route {
	r.responses = append(slices.Clone(r.responses), response{status, content{media, schema}})
	return r
}

func (r route) returnsNothing(status int) route { return r.returnsMedia(status, "", "") }

func (r route) fails(codes ...string) route {
	r.errors = slices.Concat(r.errors, codes)
	return r
}

// failsWith adds an error whose status differs from the usual one of its code.
func (r route) failsWith(status int, code string) route {
	r.statuses = maps.Clone(r.statuses)
	if r.statuses == nil {
		r.statuses = map[string]int{}
	}
	r.statuses[code] = status
	return r.fails(code)
}

// methods sets the HTTP methods of a route whose pattern does not contain one.
func (r route) methods(verbs ...string) route {
	r.verbs = verbs
	return r
}

// tag returns the group of the route in the OpenAPI document. The group follows from the route's path.
func (r route) tag() string {
	_, path, _ := strings.Cut(r.pattern, "/")
	parts := strings.Split(path, "/")
	switch {
	case parts[0] == "mcp", parts[0] == "sse", parts[0] == "register":
		return "mcp"
	case parts[0] == "ui", parts[0] == "{$}":
		return "page"
	case parts[0] == "v1" && strings.Contains(path, "/approvals"):
		return "approvals"
	case parts[0] == "v1":
		return parts[1]
	}
	return parts[0]
}

// errorCodes returns all error codes that the route may respond with, sorted.
func (r route) errorCodes() []string {
	list := slices.Concat(r.errors, codeList{errcode.HostRefused, errcode.OriginRefused, errcode.Internal})
	if r.isStrict() || len(r.inQuery()) > 0 {
		list = append(list, errcode.BadParameter)
	}
	if !r.allowsBody() { // refuseUnread refuses a body
		list = append(list, errcode.BadBody, errcode.BodyTimeout)
	}
	if r.scope != public {
		list = append(list, errcode.Unauthorized, errcode.Unavailable) // the latter while the process starts
	}
	if r.scope != public && r.scope != anyScope {
		list = append(list, errcode.Forbidden)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
