package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// committed fills in what the commit did.
func (p *Pipeline) committed(ctx context.Context, t *task, c state.Commit) error {
	if c.Already {
		res, err := p.committedBefore(ctx, t, c)
		if err == nil {
			t.result, t.notes = *res, nil // they are in it
		}
		return err
	}
	if !c.NoChange {
		t.result.Workspace.Generation = c.Generation
	}
	t.result.Workspace.Changed, t.result.Workspace.Conflicts = c.Changed, c.Conflicts
	var err error
	t.result.Artifacts, err = p.artifacts(ctx, t, t.result.Workspace)
	return err
}

// committedBefore is the result that an earlier run committed, with what only the commit could know.
func (p *Pipeline) committedBefore(ctx context.Context, t *task, c state.Commit) (*schemas.Result, error) {
	var res schemas.Result
	if err := json.Unmarshal(c.Result, &res); err != nil {
		return nil, jobs.Permanent(fmt.Errorf("read the result committed by run %d: %w", c.Attempt, err))
	}
	res.Workspace.Generation, res.Workspace.Changed, res.Workspace.Conflicts = c.Generation, c.Changed, c.Conflicts
	var err error
	res.Artifacts, err = p.artifacts(ctx, t, res.Workspace)
	return &res, err
}

// artifactsKept is how long artifacts stay: as long as records do, and some for the task that may still
// be completed by another worker.
const artifactsKept = jobs.DefaultRetention + 24*time.Hour

// artifacts are the files below artifacts/ that the task changed, and those of the version it left
// that its patterns name, changed or not.
func (p *Pipeline) artifacts(ctx context.Context, t *task, w schemas.WorkspaceChange) ([]schemas.Artifact, error) {
	below := func(name string) bool { return strings.HasPrefix(name, "artifacts/") }
	patterns := t.job.Task.Artifacts
	if w.Generation == 0 || len(patterns) == 0 && !slices.ContainsFunc(w.Changed, below) {
		return nil, nil
	}
	files, err := p.Store.List(ctx, t.ref, w.Generation, "")
	if err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	var out []schemas.Artifact
	for _, f := range files {
		named := slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, err := path.Match(pattern, f.Path)
			return ok && err == nil
		})
		made := below(f.Path) && slices.Contains(w.Changed, f.Path)
		if f.Kind != "file" || !named && !made {
			continue
		}
		out = append(out, schemas.Artifact{
			Path: f.Path, Bytes: f.Bytes,
			MediaType: cmp.Or(mime.TypeByExtension(path.Ext(f.Path)), "application/octet-stream"),
			URL:       "/v1/tasks/" + t.job.Record.TaskID + "/artifacts/" + (&url.URL{Path: f.Path}).EscapedPath(),
		})
	}
	if len(out) == 0 {
		return nil, nil
	}
	// They stay as long as the record that lists them does, however many commits come after.
	if err := p.Store.Retain(ctx, t.ref, w.Generation, time.Now().Add(artifactsKept)); err != nil {
		return nil, fmt.Errorf("keep artifacts: %w", err)
	}
	return out, nil
}
