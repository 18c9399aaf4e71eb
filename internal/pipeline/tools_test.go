package pipeline

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/toolsearch"
	"github.com/codefleet/codefleet/schemas"
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

// catalogue has one version, and lists when it is held and released.
type catalogue struct {
	Catalogue
	events []string
}

func (c *catalogue) Current(context.Context, string) (tools.Installed, func(), error) {
	c.events = append(c.events, "hold")
	return tools.Installed{ID: "v1", Dir: "dir1", Listing: tools.NewListing(nil)},
		func() { c.events = append(c.events, "release") }, nil
}

// TestTaskHoldsItsTools checks that a task holds its catalogue version until it ends, here because a stage refuses it.
func TestTaskHoldsItsTools(t *testing.T) {
	versions := &catalogue{}
	p := &Pipeline{Parts: Parts{Tools: Tools{Catalogue: versions, Index: toolsearch.New(nil).Index}}}
	job := &jobs.Job{Task: schemas.Task{Code: "print(1)", Model: "nosuch"}}
	res, err := p.run(t.Context(), newTask(job, executor.Limits{}, nil))
	if err != nil || res.Error == nil || res.Error.Code != errcode.UnknownModel {
		t.Fatalf("run = %+v, %v, want the task refused", res, err)
	}
	if diff := cmp.Diff([]string{"hold", "release"}, versions.events); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}
}
