package repo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Applied returns the commit of a task, or nil if the task has not committed
// since the given time. A zero time searches the whole history.
func (r *Repo) Applied(ctx context.Context, ref format.Ref, taskID string, since time.Time) (*Commit, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	h, _, err := r.ReadHead(ctx, ref, "")
	if err == nil {
		var c *Commit
		if c, err = r.FindTask(ctx, ref, h, taskID, UntilTime(since)); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("find task %s in %s: %w", taskID, ref, err)
}

// Fence returns the commit of a task, as Applied does. If there is none it makes sure that there never will be: a run
// of the task that is still alive somewhere gets ErrFenced from its commit. It may be repeated; after an error the task
// may be fenced or not.
func (r *Repo) Fence(ctx context.Context, ref format.Ref, taskID string, since time.Time) (*Commit, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	for backoff := r.Options.Retry.NewBackoff(); ; {
		c, done, err := r.tryFence(ctx, ref, taskID, since)
		if done {
			return c, nil
		}
		if errors.Is(err, objects.ErrConflict) || objects.Temporary(ctx, err) {
			err = backoff.Wait(ctx, err)
		}
		if err != nil {
			return nil, fmt.Errorf("fence task %s in %s: %w", taskID, ref, err)
		}
	}
}

// tryFence makes one attempt. An attempt whose swap was applied and whose response was lost is found by the next one.
func (r *Repo) tryFence(
	ctx context.Context, ref format.Ref, taskID string, since time.Time,
) (c *Commit, done bool, err error) {
	h, etag, err := r.ReadHead(ctx, ref, "")
	if err != nil {
		return nil, false, err
	}
	if c, err = r.FindTask(ctx, ref, h, taskID, UntilTime(since)); err != nil || c != nil || h.Fences(taskID) {
		return c, err == nil, err
	}
	if h.Purging() {
		return nil, false, fmt.Errorf("the deleted workspace is being purged: %w", objects.ErrTemporary)
	}
	now := time.Now().UTC()
	if etag == "" {
		f, _, err := r.ReadFloor(ctx, ref.Tenant)
		if err != nil {
			return nil, false, err
		}
		h = format.Head{
			Generation: f.Generation + 1, Born: f.Generation + 1, Commit: format.NewCommitID(), Time: now,
			Deleted: true,
		}
	}
	_, err = r.SwapHead(ctx, ref, etag, h.Fence(taskID, now))
	return nil, err == nil, err
}

// Until reports whether a search of the history may end at a commit.
type Until func(generation int64, at time.Time) bool

// UntilGeneration ends a search at a generation.
func UntilGeneration(last int64) Until {
	return func(generation int64, _ time.Time) bool { return generation <= last }
}

// UntilTime ends a search at a time, with an allowance for clock skew.
func UntilTime(since time.Time) Until {
	return func(_ int64, at time.Time) bool { return at.Before(since.Add(-format.ClockSkew)) }
}

// FindTask returns the commit of a task, or nil: from the recent tasks of HEAD, and then manifest by manifest.
func (r *Repo) FindTask(
	ctx context.Context, ref format.Ref, h format.Head, taskID string, end Until,
) (*Commit, error) {
	for _, recent := range h.Recent {
		if recent.Task == taskID {
			return r.commitAt(ctx, ref, recent)
		}
	}
	if h.Floor == 0 || end(h.Floor, h.FloorTime) || h.Manifest == nil {
		return nil, nil
	}
	name := h.Manifest.Name
	digest := &h.Manifest.Digest
	if len(h.Recent) > 0 {
		name, digest = h.Recent[0].Manifest(), nil
	}
	for {
		m, err := r.ReadManifest(ctx, ref, name, digest)
		if errors.Is(err, objects.ErrNotFound) {
			return nil, nil // removed by garbage collection
		}
		if err != nil {
			return nil, err
		}
		if m.Header.TaskID == taskID {
			return r.toCommit(ctx, ref, m)
		}
		if m.Header.Parent == nil || end(m.Header.Generation, m.Header.Time) {
			return nil, nil
		}
		name, digest = m.Header.Parent.Name, &m.Header.Parent.Digest
	}
}

func (r *Repo) commitAt(ctx context.Context, ref format.Ref, task format.RecentTask) (*Commit, error) {
	m, err := r.ReadManifest(ctx, ref, task.Manifest(), nil)
	if format.IsDamage(err) { // removed or lost; the task has committed all the same
		return &Commit{Generation: task.Generation, TaskID: task.Task, Time: time.Unix(task.Unix, 0).UTC()}, nil
	}
	if err != nil {
		return nil, err
	}
	return r.toCommit(ctx, ref, m)
}
