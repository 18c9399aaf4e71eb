package statetest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
)

// TestStore checks that workspaces work on an object store as tasks expect. open returns a new handle on the same
// object store, which must be empty at first.
func TestStore(t *testing.T, open func(t *testing.T) objects.Objects) {
	t.Helper()
	TestStoreWith(t, open, state.Options{})
}

// TestStoreWith is TestStore with options for the workspaces.
func TestStoreWith(t *testing.T, open func(t *testing.T) objects.Objects, opts state.Options) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *workspace)
	}{
		{"roundtrip", testRoundTrip},
		{"no change writes nothing", testNoChange},
		{"difference", testDifference},
		{"merge", testMerge},
		{"conflict", testConflict},
		{"the same change twice", testSameChange},
		{"keep both", testKeepBoth},
		{"state files merge by key", testStateKeys},
		{"state files merge modes", testStateMode},
		{"once per task", testOnce},
		{"applied long ago", testAppliedLongAgo},
		{"revert", testRevert},
		{"strange tree", testStrangeTree},
		{"large file", testLargeFile},
		{"racing workers", testRace},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWorkspace(t, open, opts)) })
	}
}

// workspace is the workspace of a test: its object store, its name, and the options with which workers use it.
type workspace struct {
	open func(t *testing.T) objects.Objects
	ref  state.Ref
	opts state.Options
}

func newWorkspace(t *testing.T, open func(t *testing.T) objects.Objects, opts state.Options) *workspace {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, filepath.Base(t.Name())))
	return &workspace{open, state.Ref{Tenant: "acme", Workspace: name}, opts}
}

// Secrets returns a function for state.Options.Secrets that gives every tenant the same secrets.
func Secrets(current string, old ...string) func(tenant string) state.Secrets {
	s := state.Secrets{Current: []byte(current)}
	for _, o := range old {
		s.Old = append(s.Old, []byte(o))
	}
	return func(string) state.Secrets { return s }
}
