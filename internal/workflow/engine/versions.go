package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/workflow"
)

const (
	runKept = 30 * 24 * time.Hour // how long a run is kept after its end

	// retainUnit rounds the times until which versions are retained to days, so that runs share the objects that retain
	// them.
	retainUnit = 24 * time.Hour
)

// retainVersions retains the versions of the workspace with which steps began, as long as the run is kept: Rerun begins
// with them. If the event was applied earlier, all are retained again, because the process that applied it may have
// been lost.
func (e *Engine) retainVersions(ctx context.Context, a applied) error {
	if e.Retain == nil {
		return nil
	}
	kept := map[int64]bool{0: true}
	if a.changed {
		for _, g := range workflow.Versions(a.before) {
			kept[g] = true
		}
	}
	run := a.after
	until := run.Deadline.Add(runKept + retainUnit).Truncate(retainUnit)
	for _, g := range workflow.Versions(run) {
		if kept[g] {
			continue
		}
		kept[g] = true
		if err := e.Retain(ctx, run.Tenant, run.Workspace, g, until); err != nil {
			return fmt.Errorf("retain generation %d for workflow run %s: %w", g, run.RunID, err)
		}
	}
	return nil
}
