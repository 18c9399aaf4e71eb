package bridge

import "github.com/modelcontextprotocol/go-sdk/mcp"

const (
	// modern is the first revision of the protocol without sessions.
	modern = "2026-07-28"
	// tasksExtension is the capability of the extension for long-running calls (taskext.go).
	tasksExtension = "io.modelcontextprotocol/tasks"
)

// clientRequest is a request that describes its client.
type clientRequest interface {
	ProtocolVersion() string
	ClientCapabilities() *mcp.ClientCapabilities
}

// acceptsTasks reports whether the request declares the extension.
func acceptsTasks(req mcp.Request) bool {
	r, ok := req.(clientRequest)
	if !ok || r.ProtocolVersion() < modern {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Extensions[tasksExtension] != nil
}

// canElicit reports whether the client of a request can show a form to its user.
func canElicit(req mcp.Request) bool {
	r, ok := req.(clientRequest)
	if !ok {
		return false
	}
	caps := r.ClientCapabilities()
	return caps != nil && caps.Elicitation != nil && (caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

// remote reports whether the caller is connected over HTTP. Otherwise the caller is the client that started this
// process.
func remote(extra *mcp.RequestExtra) bool { return extra != nil && extra.Header != nil }
