package names_test

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/names"
)

func TestIsSlug(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "0-b": true, strings.Repeat("x", 63): true,
		"": false, "-a": false, "A": false, "a/b": false, "a\n": false, strings.Repeat("x", 64): false,
	} {
		if got := names.IsSlug(s); got != want {
			t.Errorf("IsSlug(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{
		"main": true, "session_001": true, "user_12345": true, "customer_A": true, "A": true, "0_-": true,
		strings.Repeat("X", 63): true,
		"":                      false, "_a": false, "-a": false, "a.b": false, "a/b": false, "../a": false,
		"a\n": false, "ä": false,
		"a b": false, "a*": false, "a>": false, strings.Repeat("x", 64): false,
	} {
		if got := names.IsName(s); got != want {
			t.Errorf("IsName(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestMatchPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"order.created", "order.created", true},
		{"order.created", "order.created.x", false},
		{"order.*", "order.created", true},
		{"order.*", "order", false},
		{"*", "", true},
		{"", "", true},
		{"", "x", false},
	} {
		if got := names.MatchPattern(c.pattern, c.s); got != c.want {
			t.Errorf("MatchPattern(%q, %q) = %v, want %v", c.pattern, c.s, got, c.want)
		}
	}
}

func TestIsToolPattern(t *testing.T) {
	for s, want := range map[string]bool{
		"crm/add_note": true, "crm/add-note": true, "crm/*": true,
		"": false, "*": false, "crm": false, "crm/": false, "/add": false, "crm/add*": false, "c*/add": false,
		"*/*": false, "crm/**": false, "crm/a/*": false,
		"crm/add/": false, " crm/add": false, "crm/ add": false, "crm/add\n": false, "crm/a": true,
		"crm/a/b": true, // MCP permits slashes in names of tools
	} {
		if got := names.IsToolPattern(s); got != want {
			t.Errorf("IsToolPattern(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestIsTaskID(t *testing.T) {
	id := "abcdefghijklmnopqrstuvwxyz"
	for s, want := range map[string]bool{
		id: true, id[:25] + "7": true,
		id[:25]: false, id + "a": false, id[:25] + "1": false, id[:25] + "A": false,
	} {
		if got := names.IsTaskID(s); got != want {
			t.Errorf("IsTaskID(%q) = %v, want %v", s, got, want)
		}
	}
}
