package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
)

// TestUnmatchedPatterns checks which patterns of a task's tools.allow are reported, because they match no tool that the
// task may use.
func TestUnmatchedPatterns(t *testing.T) {
	index := &toolsearch.Index{Usable: []tools.Tool{{Server: "crm", Name: "add-note"}, {Server: "bank", Name: "pay"}}}
	s := toolset{index: index, allow: []string{"crm/*"}}
	got := s.unmatched([]string{"*", "crm/*", "crm/add-note", "crm/add_note", "cmr/*", "bank/pay", "bank/*"})
	if diff := cmp.Diff([]string{"crm/add_note", "cmr/*", "bank/pay", "bank/*"}, got); diff != "" {
		t.Errorf("unmatched (-want +got):\n%s", diff)
	}
}
