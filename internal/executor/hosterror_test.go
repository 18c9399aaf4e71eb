package executor

import (
	"errors"
	"fmt"
	"testing"
)

func TestReasonOf(t *testing.T) {
	broken := &HostError{Reason: ReasonEngineCrashed, Err: errors.New("it crashed"), Fix: "restart it"}
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
	for attempts, want := range map[int]string{
		1: "no box could be created in 1 attempt (engine_crashed): it crashed; restart it",
		3: "no box could be created in 3 attempts (engine_crashed): it crashed; restart it",
	} {
		if got := (&UnavailableError{Attempts: attempts, Err: broken}).Error(); got != want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
	}
}
