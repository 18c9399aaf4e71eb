package ingesttest

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing" //nolint:depguard // a fixture of tests

	"github.com/codefleet/codefleet/internal/ingest"
)

// document is the part of the OpenAPI document that responses are checked against.
type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Description string `json:"description"`
		} `json:"responses"`
	} `json:"paths"`
}

// documented wraps h. It reports each response whose status or error code is not in the OpenAPI document. So every test
// of the interface also tests the document.
func documented(tb testing.TB, h http.Handler) http.Handler {
	tb.Helper()
	var d document
	w := httptest.NewRecorder()
	// This is a server of its own, because h would log and trace the request.
	server := ingest.New(ingest.Options{Telemetry: ingest.Telemetry{Log: slog.New(slog.DiscardHandler)}})
	server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet,
		"http://localhost/openapi.json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		tb.Fatalf("decode openapi.json = %v, want nil", err)
	}
	mux := http.NewServeMux() // matches paths as the server does
	for path := range d.Paths {
		pattern := path
		if strings.HasSuffix(path, "{path}") || path == "/v1/state/{file}" {
			pattern = strings.TrimSuffix(path, "}") + "...}"
		}
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &statusRecorder{ResponseWriter: w}
		defer func() {
			_, path := mux.Handler(r)
			path = strings.ReplaceAll(path, "...", "")
			if problem := d.check(path, r.Method, rec.status, rec.errorCode()); problem != "" {
				tb.Errorf("%s %s: %s, want it documented", r.Method, r.URL.Path, problem)
			}
		}()
		h.ServeHTTP(rec, r)
	})
}

// generalCodes are error codes that the document does not list: those of requests that match no operation, or that are
// refused before they are matched.
var generalCodes = []string{"not_found", "method_not_allowed", "host_refused", "origin_refused"}

// check returns what is not documented about a response, or "" if all is documented.
func (d document) check(path, method string, status int, code string) string {
	switch {
	case slices.Contains(generalCodes, code), status == 0:
		return ""
	case path == "":
		return "the path is not documented"
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	o, ok := d.Paths[path][strings.ToLower(method)]
	if !ok {
		return "operation " + path + " is not documented"
	}
	resp, ok := o.Responses[strconv.Itoa(status)]
	if !ok {
		return "status " + strconv.Itoa(status) + " of " + path + " is not documented (" + code + ")"
	}
	if code != "" && !slices.Contains(strings.Split(resp.Description, ", "), code) {
		return "error code " + code + " of " + path + " is not documented"
	}
	return ""
}

// statusRecorder records the status of a response, and the body of an error.
type statusRecorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap gives http.ResponseController access to the server's own writer.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.status >= 400 {
		w.body.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// errorCode returns the code of an error response in JSON.
func (w *statusRecorder) errorCode() string {
	var e struct {
		Code string `json:"code"`
	}
	if data, err := io.ReadAll(&w.body); err == nil {
		_ = json.Unmarshal(data, &e) // the body of an error may be text
	}
	return e.Code
}
