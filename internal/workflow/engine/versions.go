package engine

import (
	"context"
	"fmt"
	"time"
)

const (
	runKept  = 30 * 24 * time.Hour // how long a run is kept after its end
	keepUnit = 24 * time.Hour      // versions are kept until the beginning of a day, so that runs share these times
)

// keepVersions keeps the versions of the workspace with which steps began, as long as the run is kept: Rerun begins
// with them. If an event was applied earlier, all are kept again, because the process that applied it may have been
// lost.
func (e *Engine) keepVersions(ctx context.Context, a applied) error {
	if e.Keep == nil {
		return nil
	}
	kept := map[int64]bool{0: true}
	if a.changed {
		for _, s := range a.before.Steps {
			kept[s.Before] = true
		}
	}
	run := a.after
	until := run.Deadline.Add(runKept + keepUnit).Truncate(keepUnit)
	for _, s := range run.Steps {
		if kept[s.Before] {
			continue
		}
		kept[s.Before] = true
		if err := e.Keep(ctx, run.Tenant, run.Workspace, s.Before, until); err != nil {
			return fmt.Errorf("keep generation %d for workflow run %s: %w", s.Before, run.RunID, err)
		}
	}
	return nil
}
