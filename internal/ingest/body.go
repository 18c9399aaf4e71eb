package ingest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// readBody returns the whole body of a request, within the limits of size and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, apierror.New(errcode.BadMediaType, "compressed bodies are not supported")
	}
	if r.ContentLength > s.o.Limits.Body {
		return nil, s.bodyTooLarge()
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		endBodyTime(w)
		return body, nil
	}
	w.Header().Set("Connection", "close") // otherwise net/http would read the rest of the body
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, s.bodyTooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, apierror.New(errcode.BodyTimeout, "the body did not arrive within %s", s.o.Limits.BodyTime)
	}
	return nil, apierror.New(errcode.BadBody, "the connection ended before the whole body arrived")
}

// endBodyTime removes the time limit of a body that has arrived. The limit would end a request that takes longer.
func endBodyTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

func (s *Server) bodyTooLarge() error {
	e := apierror.New(errcode.TooLarge, "the body is larger than %d bytes", s.o.Limits.Body)
	e.Hint = "put large files into the workspace"
	return e
}

// waitOf reads ?wait=, a duration ("30s") or a number of seconds, and shortens it to the limit. done reports whether
// the wait may end early. With ?until=approval, it may once a tool call that ?known= does not list waits for approval.
func (s *Server) waitOf(r *http.Request) (wait time.Duration, done func(schemas.Record) bool, err error) {
	q := r.URL.Query()
	done = func(schemas.Record) bool { return false }
	switch q.Get("until") {
	case "", "end":
	case "approval":
		known := strings.Split(q.Get("known"), ",")
		done = func(rec schemas.Record) bool {
			return slices.ContainsFunc(rec.Pending(time.Now()), func(a schemas.Approval) bool {
				return !slices.Contains(known, a.Call)
			})
		}
	default:
		return 0, nil, badParameter("until", "it must be end or approval")
	}
	v := q.Get("wait")
	if v == "" {
		return 0, done, nil
	}
	d, err := time.ParseDuration(v)
	if secs, numErr := strconv.ParseFloat(v, 64); numErr == nil && secs >= 0 {
		d, err = time.Duration(min(secs, 1e6)*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return 0, nil, badParameter("wait", "it must be a duration, as in wait=30s")
	}
	return min(d, s.o.Limits.Wait), done, nil
}

// limitOf reads ?limit=.
func limitOf(r *http.Request) (int, error) {
	v := r.URL.Query().Get("limit")
	if v == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1000 {
		return 0, badParameter("limit", "it must be a number from 1 to 1000")
	}
	return n, nil
}

func badParameter(name, why string) error {
	e := apierror.New(errcode.BadParameter, "the parameter %s is invalid", name)
	e.Cause, e.Path = why, name
	return e
}
