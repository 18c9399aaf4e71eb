package ingest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/errcode"
)

// handler responds to a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is one row of the table: what the mux serves and what the OpenAPI document describes. Its methods
// return a changed copy.
type route struct {
	pattern string // as for http.ServeMux; without a method, it serves all methods
	scope   string // the scope that the token needs, or anyScope, or public
	handle  handler

	id, summary, description string
	params                   []string // names in the table of parameters, without those of the path
	bodies                   []content
	responses                []response
	errors                   codeList
	statuses                 map[string]int // of errors with another status than their code usually has
	verbs                    []string       // HTTP methods to describe, if the pattern has no method
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
	}
	toolErrors      = codeList{errcode.NoTools, errcode.Unavailable, errcode.Stopping}
	storeErrors     = append(codeList{errcode.NoWorkspaces, errcode.Corrupt, errcode.NoKey}, queueErrors...)
	workspaceErrors = append(codeList{
		errcode.BadName, errcode.BadPath, errcode.UnknownVersion, errcode.WorkspaceDeleted,
	}, storeErrors...)
	commitErrors = codeList{errcode.Conflict, errcode.QuotaExceeded}
)

// row returns a route. id and summary are its operationId and summary in the OpenAPI document.
func row(pattern, scope string, h handler, id, summary string) route {
	return route{pattern: pattern, scope: scope, handle: h, id: id, summary: summary}
}

func (r route) note(text string) route {
	r.description = text
	return r
}

func (r route) takes(names ...string) route {
	r.params = names
	return r
}

// body adds a media type of the request body, and the errors of reading one.
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

// failsWith adds an error with another status than its code usually has.
func (r route) failsWith(status int, code string) route {
	r.statuses = map[string]int{code: status}
	return r.fails(code)
}

// methods lists the HTTP methods of a pattern without a method.
func (r route) methods(verbs ...string) route {
	r.verbs = verbs
	return r
}

// tag returns the group of the route: the part of the path that says what it is about.
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
	if r.changes() || len(r.inQuery()) > 0 {
		list = append(list, errcode.BadParameter)
	}
	if !r.takesBody() {
		list = append(list, errcode.BadBody)
	}
	if r.scope != public {
		list = append(list, errcode.Unauthorized)
	}
	if r.scope != public && r.scope != anyScope {
		list = append(list, errcode.Forbidden)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
