package format

import (
	"errors"
	"strings"
	"testing"
)

// TestTooManyPins checks that the error about too many pins does not name a quota, because none raises that limit.
func TestTooManyPins(t *testing.T) {
	p := Pins{Pins: []Pin{{Name: strings.Repeat("n", maxPins), Generation: 1}}}
	_, err := EncodePins(Ref{Tenant: "acme", Workspace: "w"}, NewKeyring("acme", Secrets{}), p)
	const want = "limit of all workspaces exceeded: there are too many pins"
	if !errors.Is(err, ErrQuota) || err.Error() != want {
		t.Errorf("EncodePins() of too many pins = %v, want %q, which wraps ErrQuota", err, want)
	}
}
