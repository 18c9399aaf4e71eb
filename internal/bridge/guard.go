package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/httpserve"
)

// refuse responds to a request for which authenticate returned err.
func (b *Bridge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*client.APIError](err)
	switch {
	case ok && e.Status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate",
			fmt.Sprintf("Bearer realm=%q, resource_metadata=%q", "codefleet", origin(r)+metadata+PathMCP))
		http.Error(w, e.Message, http.StatusUnauthorized)
	case ok && e.Status == http.StatusForbidden:
		http.Error(w, e.Message, http.StatusForbidden)
	case r.Context().Err() != nil: // the caller has disconnected
	default:
		b.o.Log.WarnContext(r.Context(), "token not verified", "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the fleet does not respond: try again", http.StatusServiceUnavailable)
	}
}

// origin returns the origin of this server as the caller addressed it.
func origin(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// serveMetadata describes this resource and names the servers that issue tokens for it (RFC 9728).
func (b *Bridge) serveMetadata(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // the metadata is public
	h.Set("Content-Type", "application/json")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"resource":                 origin(r) + PathMCP,
		"resource_name":            "codefleet",
		"authorization_servers":    append([]string{}, b.o.AuthServers...),
		"scopes_supported":         []string{scopeRead, scopeSubmit},
		"bearer_methods_supported": []string{"header"},
	})
}

// guard refuses requests that a hostile web page could send through a browser.
func (b *Bridge) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !httpserve.HostAllowed(r, b.o.Hosts) {
			http.Error(w, "the Host header names another server", http.StatusForbidden)
			return
		}
		if !httpserve.OriginAllowed(r, b.o.Origins) {
			http.Error(w, "web pages of this origin may not send requests", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
