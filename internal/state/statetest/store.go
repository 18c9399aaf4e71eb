package statetest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/state"
)

// TestStore is what every object store must make possible: the life of
// workspaces as tasks see it. open returns a new handle on one and the same, initially
// empty, object store.
func TestStore(t *testing.T, open func(t *testing.T) state.Objects) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"roundtrip", testRoundTrip},
		{"no change writes nothing", testNoChange},
		{"difference", testDifference},
		{"merge", testMerge},
		{"conflict", testConflict},
		{"the same change twice", testSameChange},
		{"keep both", testKeepBoth},
		{"state files merge by key", testStateKeys},
		{"once per task", testOnce},
		{"applied long ago", testAppliedLongAgo},
		{"revert", testRevert},
		{"strange tree", testStrangeTree},
		{"large file", testLargeFile},
		{"racing workers", testRace},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorld(t, open)) })
	}
}

// world is one workspace and the workers on it.
type world struct {
	open func(t *testing.T) state.Objects
	ref  state.Ref
}

func newWorld(t *testing.T, open func(t *testing.T) state.Objects) *world {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, filepath.Base(t.Name())))
	return &world{open, state.Ref{Tenant: "acme", Workspace: name}}
}
