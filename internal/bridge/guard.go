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
		// Do not name protected-resource metadata: clients that read it begin OAuth, which the fleet does not support.
		challenge := `Bearer realm="codefleet"`
		if r.Header.Get("Authorization") != "" {
			challenge += fmt.Sprintf(", error=\"invalid_token\", error_description=%q", e.Message)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, e.Message+": "+sendToken, http.StatusUnauthorized)
	case ok && e.Status == http.StatusForbidden:
		http.Error(w, e.Message, http.StatusForbidden)
	case r.Context().Err() != nil: // the caller has disconnected
	default:
		b.o.Log.WarnContext(r.Context(), "token not verified", "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the fleet does not respond: try again", http.StatusServiceUnavailable)
	}
}

// sendToken says how a client authenticates.
const sendToken = "send a token of this fleet in the header Authorization: Bearer TOKEN"

// refuseRegistration responds to clients that attempt to register with OAuth, as some do after any 401, and then
// show only this response.
func refuseRegistration(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{ // fails if the client has disconnected
		"error":             "invalid_client_metadata",
		"error_description": "the fleet refused the token, or got none, and does not support OAuth: " + sendToken,
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
