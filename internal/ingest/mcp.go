package ingest

import (
	"net/http"
	"time"
)

// getWhoAmI answers with whom the token belongs to, whatever its scopes.
func (s *Server) getWhoAmI(w http.ResponseWriter, r *http.Request) error {
	id, e := s.authenticate(r)
	if e != nil {
		return e
	}
	if v := visitOf(r.Context()); v != nil {
		v.id = id
	}
	writeJSON(w, http.StatusOK, struct {
		Name   string   `json:"name"`
		Tenant string   `json:"tenant"`
		Scopes []string `json:"scopes"`
	}{id.name, id.tenant, id.scopes})
	return nil
}

// mcpPaths are where the MCP bridge answers: streamable HTTP, the older SSE transport, and the
// metadata that tells a client who gives tokens.
var mcpPaths = []string{"/mcp", "/sse", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"}

// routeMCP hands those paths on. Streams of the bridge last for as long as their clients do: it sets
// deadlines of its own for each piece that it reads and writes.
func (s *Server) routeMCP(mux *http.ServeMux) {
	if s.o.MCP == nil {
		return
	}
	for _, p := range mcpPaths {
		mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.SetWriteDeadline(time.Time{})
			s.o.MCP.ServeHTTP(w, r)
		})
	}
}
