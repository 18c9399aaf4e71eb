package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// PathChange is one difference between two versions.
type PathChange struct {
	Path  string `json:"path"`
	Op    string `json:"op"`    // added, removed, modified
	Bytes int64  `json:"bytes"` // the size afterwards, or before if the path was removed
}

// Log returns the commits of a workspace, newest first, at most limit of them
// (0: all). Results of tasks are not read.
func Log(ctx context.Context, r *repo.Repo, ref format.Ref, limit int) ([]repo.Commit, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	var log []repo.Commit
	err := r.Walk(ctx, ref, func(_ format.ManifestRef, m *format.Manifest) bool {
		h := m.Header
		log = append(log, repo.Commit{
			Generation: h.Generation, ID: h.Commit, TaskID: h.TaskID, Attempt: h.Attempt, Time: h.Time,
			Message: h.Message, Changed: m.ChangedPaths(), Conflicts: h.Conflicts,
		})
		return limit == 0 || len(log) < limit
	})
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", ref, err)
	}
	return log, nil
}

// Diff returns what changed from one generation to another; 0 is the newest.
func Diff(ctx context.Context, r *repo.Repo, ref format.Ref, from, to int64) ([]PathChange, error) {
	a, err := r.Find(ctx, ref, from)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	b, err := r.Find(ctx, ref, to)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	var out []PathChange
	for _, c := range a.Set.Diff(b.Set) {
		old := a.Set.Find(c.Path)
		switch {
		case c.Entry == nil:
			out = append(out, PathChange{c.Path, "removed", old.Size})
		case old == nil:
			out = append(out, PathChange{c.Path, "added", c.Entry.Size})
		default:
			out = append(out, PathChange{c.Path, "modified", c.Entry.Size})
		}
	}
	return out, nil
}

// Restore commits an earlier generation again. No content is copied, and the versions in between stay.
func Restore(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, message string) (repo.Commit, error) {
	old, err := r.Find(ctx, ref, generation)
	if err != nil {
		return repo.Commit{}, fmt.Errorf("restore: %w", err)
	}
	return r.Replace(ctx, ref, old.Set, message)
}

// Fork starts a workspace of the same tenant from a generation of ref; 0 is the newest. It returns
// objects.ErrConflict unless the workspace is new or deleted.
func Fork(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, to string, message string,
) (repo.Commit, error) {
	target := format.Ref{Tenant: ref.Tenant, Workspace: to}
	if err := target.Check(); err != nil {
		return repo.Commit{}, err
	}
	old, err := r.Find(ctx, ref, generation)
	if err != nil {
		return repo.Commit{}, fmt.Errorf("fork: %w", err)
	}
	h, _, err := r.ReadHead(ctx, target, "")
	if err != nil {
		return repo.Commit{}, fmt.Errorf("fork: %w", err)
	}
	if h.Manifest != nil {
		return repo.Commit{}, fmt.Errorf("fork: workspace %s exists: %w", target, objects.ErrConflict)
	}
	return r.Replace(ctx, target, old.Set, message)
}

// Delete deletes a workspace. Commits of versions before that fail with repo.ErrDeleted; a task that checks out
// afterwards begins with an empty workspace. Garbage collection removes the objects after the grace time.
func Delete(ctx context.Context, r *repo.Repo, ref format.Ref) error {
	if err := ref.Check(); err != nil {
		return err
	}
	id := format.NewCommitID()
	for backoff := r.Options.Retry.NewBackoff(); ; {
		h, etag, err := r.ReadHead(ctx, ref, "")
		if err != nil || h.Manifest == nil {
			return err
		}
		next := &format.Head{
			Generation: h.Generation + 1, Commit: id, Time: time.Now().UTC(), Deleted: true, Born: h.Born,
			Recent: h.Recent, Floor: h.Floor, FloorTime: h.FloorTime, Fenced: h.Fenced,
		}
		if _, err = r.SwapHead(ctx, ref, etag, next); err == nil {
			r.Notify(ref)
			return nil
		}
		if errors.Is(err, objects.ErrConflict) || objects.Temporary(ctx, err) {
			err = backoff.Wait(ctx, err)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", ref, err)
		}
	}
}
