package mcp

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDropReplaced checks that the sessions of a process whose files are replaced all the time are dropped at most once
// a minute, and only if no other call uses the connection.
func TestDropReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{up: &upstream{manager: &Manager{}}}
		var got []bool
		for _, step := range []struct {
			after    time.Duration
			inFlight int
		}{{0, 2}, {0, 1}, {0, 1}, {replacePause - 1, 1}, {1, 2}, {0, 1}, {0, 1}} {
			time.Sleep(step.after) //nolint:forbidigo // virtual time, of synctest
			s := &mcpSession{}
			s.once.Do(func() {}) // there is nothing to close
			c.inFlight, c.session = step.inFlight, s
			got = append(got, c.dropReplaced(s))
			if dropped := c.session == nil; dropped != got[len(got)-1] {
				t.Errorf("dropReplaced = %v, but the session was dropped: %v", got[len(got)-1], dropped)
			}
		}
		if want := []bool{false, true, false, false, false, true, false}; !slices.Equal(got, want) {
			t.Errorf("dropReplaced = %v, want %v", got, want)
		}
	})
}
