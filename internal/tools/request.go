package tools

import (
	"encoding/json"
	"fmt"
)

// Request is one call of an MCP tool as it leaves for the server.
type Request struct {
	Server, Tool    string
	Tenant, Session string // whose connection to use, where the server's scope asks for it
	Args            json.RawMessage
	Hash            string                                    // the definition that the caller relies on; empty: any
	Repeatable      bool                                      // may be made again when the connection was lost under it
	Progress        func(message string, done, total float64) // not after the call has returned; must not block
}

// Result is what a tool answered.
type Result struct {
	Structured json.RawMessage // nil when the server gave none
	Content    []Content
	IsError    bool // the tool refused or failed; Content says why
}

// Content is one block of an answer.
type Content struct {
	Type      string // text | image | audio | resource | link
	Text      string
	Data      []byte // of images, audio and binary resources
	MediaType string
	URI       string // of resources and links
}

// Reason classifies why a call did not come to an answer of the tool.
type Reason string

// The reasons of an UpstreamError.
const (
	Down     Reason = "down"     // the server cannot be reached; nothing was sent
	Lost     Reason = "lost"     // the connection ended under the call; it may have been carried out
	Timeout  Reason = "timeout"  // no answer and no progress in time; it may have been carried out
	TooLarge Reason = "large"    // the answer is over the limit
	Drifted  Reason = "changed"  // the server's definition is not the one that the caller relies on
	Refused  Reason = "refused"  // a protocol error: the server does not know the tool, say
	Protocol Reason = "protocol" // the answer is not one
)

// UpstreamError says that a call came to no answer of the tool, and whether it may have had effects.
type UpstreamError struct {
	Server, Tool string
	Reason       Reason
	Sent         bool // it may have been carried out
	Err          error
	Current      *Definition // of Drifted: what the server says now; nil when it has no such tool
}

func (e *UpstreamError) Error() string {
	return fmt.Sprintf("server %s: %v", e.Server, e.Err)
}

func (e *UpstreamError) Unwrap() error { return e.Err }
