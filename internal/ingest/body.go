package ingest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/refusal"
)

// readBody returns the whole body of a request, within the limits of size and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, refusal.New(http.StatusUnsupportedMediaType, "bad_media_type", "compressed bodies are not taken")
	}
	if r.ContentLength > s.o.MaxBody {
		return nil, s.bodyTooLarge()
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		// The deadline was for the body alone: it would end a request that waits for a task, too.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, nil
	}
	w.Header().Set("Connection", "close") // the rest of the body is not waited for
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, s.bodyTooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, refusal.New(http.StatusRequestTimeout, "body_timeout", "the body did not arrive in %s", s.o.BodyTime)
	}
	return nil, refusal.New(http.StatusBadRequest, "bad_body", "the body did not arrive whole")
}

func (s *Server) bodyTooLarge() error {
	e := refusal.New(http.StatusRequestEntityTooLarge, "too_large", "the body is larger than %d bytes", s.o.MaxBody)
	e.Hint = "hand large files over through the workspace"
	return e
}

// waitOf reads ?wait= as a duration ("30s") or a number of seconds, cut to the longest that is served.
func (s *Server) waitOf(r *http.Request) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if secs, numErr := strconv.ParseFloat(v, 64); numErr == nil && secs < 1e6 {
		d, err = time.Duration(secs*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return 0, badParameter("wait", "it is a duration, as in wait=30s")
	}
	return min(d, s.o.MaxWait), nil
}

// limitOf reads ?limit=.
func limitOf(r *http.Request) (int, error) {
	v := r.URL.Query().Get("limit")
	if v == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1000 {
		return 0, badParameter("limit", "it is a number from 1 to 1000")
	}
	return n, nil
}

func badParameter(name, why string) error {
	e := refusal.New(http.StatusBadRequest, "bad_parameter", "the parameter %s cannot be understood", name)
	e.Cause, e.Path = why, name
	return e
}
