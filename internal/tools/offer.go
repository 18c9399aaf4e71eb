package tools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// The messages between the fleet and the processes that serve registered tools, in JSON. What a
// process sends is untrusted.
type (
	// Offer is a process's announcement of the tools of one server that it serves.
	Offer struct {
		Server string `json:"server"`
		About
		Started time.Time     `json:"started"` // if definitions differ, the process that started last wins
		Tools   []OfferedTool `json:"tools"`
	}
	// OfferedTool is a registered tool.
	OfferedTool struct {
		Definition
		TimeoutS float64 `json:"timeout_s,omitempty"` // for one call, in seconds; 0 means 60
		Expose   bool    `json:"expose,omitempty"`    // also offer it as a tool of the MCP bridge
	}
	// OfferedCall is a call of a registered tool.
	OfferedCall struct {
		Tenant  string          `json:"tenant"`
		Session string          `json:"session,omitempty"`
		Hash    string          `json:"hash,omitempty"` // the definition that the caller expects; empty means any
		Args    json.RawMessage `json:"args"`
	}
	// OfferedResponse has a Value or an Error.
	OfferedResponse struct {
		Value json.RawMessage `json:"value,omitempty"`
		Error string          `json:"error,omitempty"`
		Code  OfferCode       `json:"code,omitempty"` // why Error is set
	}
	// OfferCode classifies the error of an OfferedResponse.
	OfferCode string
)

// The codes of an OfferedResponse.
const (
	OfferFailed  OfferCode = "failed"  // the tool returned an error
	OfferChanged OfferCode = "changed" // the process serves a different definition; the tool was not invoked
	OfferLarge   OfferCode = "large"   // the result is too large
)

// MaxOffered is the maximum number of tools that a tenant's processes may serve.
const MaxOffered = 500

// maxOfferedTimeout is the longest time that a tool may request for a call.
const maxOfferedTimeout = 10 * time.Minute

var (
	offeredServer = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	offeredTool   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
)

// CheckOfferedServer returns an error if processes cannot serve a server of this name.
func CheckOfferedServer(server string) error {
	if !offeredServer.MatchString(server) {
		return fmt.Errorf("server %q: its name must be a lower-case letter followed by up to 62 lower-case letters, "+
			"digits or _", printableName(server))
	}
	return nil
}

// Check returns an error if the tool cannot be served.
func (t OfferedTool) Check() error {
	var schema struct {
		Type any `json:"type"`
	}
	switch {
	case !offeredTool.MatchString(t.Name):
		return fmt.Errorf("tool %q: its name must be a letter followed by up to 63 letters, digits, - or _",
			printableName(t.Name))
	case json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object":
		return fmt.Errorf("tool %q: its input schema must have the type object", t.Name)
	case len(t.OutputSchema) > 0 && !json.Valid(t.OutputSchema):
		return fmt.Errorf("tool %q: its output schema is not valid JSON", t.Name)
	case t.TimeoutS < 0 || t.TimeoutS > maxOfferedTimeout.Seconds():
		return fmt.Errorf("tool %q: its timeout must be between 0 and %s", t.Name, maxOfferedTimeout)
	}
	return nil
}
