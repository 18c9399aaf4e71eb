package tools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// What a process that serves tools of a tenant, and the fleet, say to each other. All of it is JSON,
// and to the fleet what such a process says is data from outside.
type (
	// Offer is what one process serves below one server's name.
	Offer struct {
		Server string `json:"server"`
		About
		Started time.Time     `json:"started"` // of two that differ, the definitions of the later one hold
		Tools   []OfferedTool `json:"tools"`
	}
	// OfferedTool is one of them.
	OfferedTool struct {
		Definition
		TimeoutS float64 `json:"timeout_s,omitempty"` // for a call; 0: 60 s
		Expose   bool    `json:"expose,omitempty"`    // as a tool of the MCP bridge
	}
	// OfferCall asks for a call.
	OfferRequest struct {
		Tenant  string          `json:"tenant"`
		Session string          `json:"session,omitempty"`
		Hash    string          `json:"hash,omitempty"` // the definition that the caller relies on; empty: any
		Args    json.RawMessage `json:"args"`
	}
	// OfferAnswer is the answer: Value, or Error.
	OfferResponse struct {
		Value json.RawMessage `json:"value,omitempty"`
		Error string          `json:"error,omitempty"`
		Code  OfferCode       `json:"code,omitempty"` // of an Error
	}
	// OfferCode says what kind of error it is.
	OfferCode string
)

// The codes of an OfferAnswer.
const (
	OfferFailed  OfferCode = "failed"  // the tool said so
	OfferChanged OfferCode = "changed" // the definition is another one; nothing was done
	OfferLarge   OfferCode = "large"   // the answer is too large
)

// MaxOffered bounds how many tools a tenant's processes may serve.
const MaxOffered = 500

var (
	offeredServer = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	offeredTool   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
)

// CheckOffered says why a name cannot be a server that processes serve.
func CheckOfferedServer(server string) error {
	if !offeredServer.MatchString(server) {
		return fmt.Errorf("server %q: its name begins with a lower-case letter, followed by up to 62 lower-case letters, digits and _", printableName(server))
	}
	return nil
}

// Check says why a definition cannot be served.
func (t OfferedTool) Check() error {
	var schema struct {
		Type any `json:"type"`
	}
	switch {
	case !offeredTool.MatchString(t.Name):
		return fmt.Errorf("tool %q: its name begins with a letter, followed by up to 63 letters, digits, - and _", printableName(t.Name))
	case json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object":
		return fmt.Errorf("tool %q: its input is no object", t.Name)
	case len(t.OutputSchema) > 0 && !json.Valid(t.OutputSchema):
		return fmt.Errorf("tool %q: its output schema is no JSON", t.Name)
	case t.TimeoutS < 0 || t.TimeoutS > maxOfferedTimeout.Seconds():
		return fmt.Errorf("tool %q: its timeout is over %s", t.Name, maxOfferedTimeout)
	}
	return nil
}

// MaxOfferedTimeout is the longest that a tool may ask for.
const maxOfferedTimeout = 10 * time.Minute
