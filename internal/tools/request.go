package tools

import (
	"encoding/json"
	"fmt"
)

// Request is one call of an MCP tool or a registered tool, as it is sent to the server.
type Request struct {
	Server, Tool    string
	Tenant, Session string // select the connection to the server
	Args            json.RawMessage
	Hash            string // the definition that the caller expects; empty means any
	Repeatable      bool   // may be sent again if the connection is lost during the call
	// Progress receives the server's progress notifications until the call returns. It must not block.
	Progress func(message string, done, total float64)
}

// Result is a tool's result.
type Result struct {
	Structured json.RawMessage // nil if the server sent none
	Content    []Content
	IsError    bool // the tool failed; Content has its message
}

// Content is one block of a result.
type Content struct {
	Type      string // text | image | audio | resource | resource_link
	Text      string // the name, if it is a resource link
	Data      []byte // for images, audio and binary resources
	MediaType string
	URI       string // for resources and resource links

	Title, Description string // for resource links; may be empty
	Size               *int64 // of the resource that a link names, in bytes; nil if unknown
}

// Reason classifies why a call ended without a tool result.
type Reason string

// The reasons of an UpstreamError.
const (
	Down     Reason = "down"     // the server could not be reached; nothing was sent
	Lost     Reason = "lost"     // the connection or its session ended; Sent tells whether the call may have effects
	Timeout  Reason = "timeout"  // no response and no progress in time; the call may have taken effect
	TooLarge Reason = "large"    // the response exceeds the limit
	Drifted  Reason = "changed"  // the server's definition is not the one that the caller expects
	Refused  Reason = "refused"  // the server responded with a protocol error, such as for an unknown tool
	Protocol Reason = "protocol" // the response is invalid
)

// UpstreamError reports that a call ended without a tool result.
type UpstreamError struct {
	Server string
	Reason Reason
	Sent   bool // the call may have taken effect
	Err    error
	Data   json.RawMessage // what the server sent beside the message; nil if nothing, or if it is too large
}

func (e *UpstreamError) Error() string {
	return fmt.Sprintf("server %s: %v", e.Server, e.Err)
}

func (e *UpstreamError) Unwrap() error { return e.Err }
