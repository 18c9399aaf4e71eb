package ingest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
)

// fail responds with an error. It logs server errors, whose details the caller may not see.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := apierror.Of(err)
	if e.Status >= 500 && r.Context().Err() == nil { // otherwise the caller has disconnected
		cause := cmp.Or(causes(err), e.Message)
		s.o.Telemetry.Log.WarnContext(r.Context(), "request failed", "code", e.Code, "error", cause)
	}
	h := w.Header()
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="codefleet"`)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if rec, ok := w.(*recorder); ok {
		rec.code = e.Code
	}
	writeJSON(w, e.Status, e)
}

// causes returns the text of the innermost errors of err, for the log. The errors that wrap them contain names of a
// tenant's files and keys of the object store, which must not be logged. The log message of the request has its route
// and tenant.
func causes(err error) string {
	var texts []string
	for _, leaf := range leaves(err) {
		if text := leaf.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ": ")
}

// leaves returns the innermost errors of err, without API errors, whose code is logged. It does not unwrap a network
// error, because its address is part of the cause.
func leaves(err error) (list []error) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil, *apierror.Error:
		return nil
	case *net.OpError:
		return []error{e}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = append(list, leaves(inner)...)
		}
		return list
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return leaves(inner)
		}
	}
	return []error{err}
}

// respond writes v as the whole response, unless err is not nil.
func respond(w http.ResponseWriter, v any, err error) error {
	if err == nil {
		writeJSON(w, http.StatusOK, v)
	}
	return err
}

// respondList writes a JSON array as the whole response, unless err is not nil. It writes item by item, so that a
// long list is not in memory twice.
func respondList[T any](w http.ResponseWriter, items []T, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	separator := "["
	for _, item := range items {
		_, err := w.Write([]byte(separator))
		if errors.Join(err, enc.Encode(item)) != nil {
			return nil //nolint:nilerr // the caller has disconnected
		}
		separator = ","
	}
	if len(items) == 0 {
		_, _ = w.Write([]byte("["))
	}
	_, _ = w.Write([]byte("]\n"))
	return nil
}

// writeJSON writes v as the whole response. It ignores errors of writing: the caller has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// recorder records what the log and the span report about a request. It is the http.ResponseWriter of all
// handlers. Each write has its own deadline: the time that a handler takes before and between its writes does not
// count, and a client that stops reading is disconnected.
type recorder struct {
	http.ResponseWriter
	rc          *http.ResponseController
	timeout     time.Duration // time limit of each write
	bodyTime    time.Duration // how long net/http may wait for the rest of an unread body before it sends the response
	status      int
	bytes       int64
	id          identity
	route, code string // the route's pattern; the response's error code
}

// Unwrap gives http.ResponseController access to the server's own writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.extendDeadline()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) extendDeadline() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.bodyTime + w.timeout)) // not every ResponseWriter supports it
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extendDeadline()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}
