package drivers

import "testing"

func TestTierSatisfies(t *testing.T) {
	for _, c := range []struct {
		have, want string
		ok         bool
	}{
		{"gvisor", "", true},
		{"", "", true},
		{"gvisor", "gvisor", true},
		{"microsandbox", "gvisor", true},
		{"microsandbox", "microsandbox", true},
		{"gvisor", "microsandbox", false},
		{"", "gvisor", false},
		{"microsandbox", "vault", false},
	} {
		if got := TierSatisfies(c.have, c.want); got != c.ok {
			t.Errorf("TierSatisfies(%q, %q) = %v, want %v", c.have, c.want, got, c.ok)
		}
	}
}
