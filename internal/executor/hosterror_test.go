package executor

import (
	"errors"
	"fmt"
	"testing"
)

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

func TestReasonOf(t *testing.T) {
	broken := &HostError{Reason: ReasonEngineCrashed, Err: errors.New("it crashed"), Fix: "mend it"}
	for _, c := range []struct {
		err  error
		want Reason
	}{
		{nil, ""},
		{errors.New("x"), ReasonBootFailed},
		{broken, ReasonEngineCrashed},
		{fmt.Errorf("make box: %w", errors.Join(errors.New("y"), broken)), ReasonEngineCrashed},
		{&UnavailableError{Attempts: 3, Err: broken}, ReasonEngineCrashed},
	} {
		if got := ReasonOf(c.err); got != c.want {
			t.Errorf("ReasonOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
	if got, want := (&UnavailableError{Attempts: 3, Err: broken}).Error(), "no box could be created in 3 attempts (engine_crashed): it crashed; mend it"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}
