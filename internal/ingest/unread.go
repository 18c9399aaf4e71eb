package ingest

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// This file refuses requests with parameters, headers or a body that no handler reads. If they were ignored, the
// request would change more than its sender meant.

// isStrict reports whether requests of the route are checked strictly: those whose method changes something. Events are
// not: no parameter limits what they change, and their senders may add parameters of their own.
func (r route) isStrict() bool {
	method, path, _ := strings.Cut(r.pattern, " ")
	return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method) && strings.HasPrefix(path, "/v1/") &&
		path != "/v1/events"
}

// allowsBody reports whether requests of the route may have a body. Strict ones may only if the handler reads it.
func (r route) allowsBody() bool { return len(r.bodies) > 0 || !r.isStrict() }

// inQuery returns the route's parameters of the query.
func (r route) inQuery() []string {
	return slices.DeleteFunc(slices.Clone(r.params), func(name string) bool { return parameters[name].in == "header" })
}

// refuseUnread refuses a request with something that the route's handler does not read.
func (r route) refuseUnread(w http.ResponseWriter, req *http.Request) error {
	if err := r.checkQuery(req.URL.RawQuery); err != nil || !r.isStrict() {
		return err
	}
	if err := r.checkHeader(req.Header); err != nil || r.allowsBody() {
		return err
	}
	return r.checkNoBody(w, req)
}

// checkQuery refuses a parameter that occurs twice, unless it is a list. It refuses a change with an invalid query, an
// unknown parameter or an empty one.
func (r route) checkQuery(rawQuery string) error {
	query, err := url.ParseQuery(rawQuery)
	if err != nil && r.isStrict() {
		return badParameter("query", "it is not valid: "+err.Error())
	}
	known := r.inQuery()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(known, name):
			if r.isStrict() {
				return badParameter(text.Truncate(name, maxParameter), "this request has no such parameter")
			}
		case len(query[name]) > 1 && !isList(name):
			return badParameter(name, "it occurs more than once")
		case r.isStrict() && slices.Contains(query[name], ""):
			return badParameter(name, "it is empty; leave it out for its default")
		}
	}
	return nil
}

// isList reports whether a parameter may occur several times.
func isList(name string) bool { return strings.Contains(parameterSchemas[name], `"type":"array"`) }

// conditionHeaders are headers that make a change conditional or partial.
var conditionHeaders = []string{"If-Match", "If-None-Match", "If-Unmodified-Since", "Content-Range"}

// checkHeader refuses a change with a condition that the route does not support, or with a parameter that is empty or
// occurs twice.
func (r route) checkHeader(h http.Header) error {
	for _, name := range conditionHeaders {
		if len(h.Values(name)) > 0 && !slices.Contains(r.params, name) {
			return badParameter(name, "this request cannot be made conditional or partial with it")
		}
	}
	for _, name := range r.params {
		switch values := h.Values(name); {
		case parameters[name].in != "header" || len(values) == 0:
		case len(values) > 1:
			return badParameter(name, "it occurs more than once")
		case strings.TrimSpace(values[0]) == "":
			return badParameter(name, "it is empty; leave it out for its default")
		}
	}
	return nil
}

// checkNoBody refuses a body, whose parameters would be ignored. It accepts {}, which says nothing.
func (r route) checkNoBody(w http.ResponseWriter, req *http.Request) error {
	if req.ContentLength == 0 {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(req.Body, 4))
	if said := strings.TrimSpace(string(start)); err == nil && (said == "" || said == "{}") && len(start) < 4 {
		endBodyTime(w)
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Header().Set("Connection", "close") // as in readBody
		return apierror.New(errcode.BodyTimeout, "the body did not arrive in time")
	}
	e := apierror.New(errcode.BadBody, "this request takes no body")
	e.Hint = "the path says what the request is about; send no body"
	if known := r.inQuery(); len(known) > 0 {
		e.Hint = "put the parameters into the URL: " + strings.Join(known, ", ")
	}
	return e
}

// maxParameter is how many bytes of an unknown parameter's name an error quotes.
const maxParameter = 100
