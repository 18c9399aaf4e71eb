package repo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Applied returns a task's commit, or nil if the task has not committed since the given time. A zero time searches the
// whole history.
func (r *Repo) Applied(ctx context.Context, ref format.Ref, taskID string, since time.Time) (*Commit, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	h, _, err := r.FindHead(ctx, ref)
	if err == nil {
		var c *Commit
		if c, err = r.FindTask(ctx, ref, h, taskID, UntilTime(since)); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("find task %s in %s: %w", taskID, ref, err)
}

// Fence returns a task's commit, as Applied does. If the task has not committed, Fence makes sure that its runs up to
// the number attempt never will: if one of them is still alive, its commit returns ErrFenced. Fence may be repeated;
// after an error the runs may or may not be fenced.
func (r *Repo) Fence(
	ctx context.Context, ref format.Ref, taskID string, attempt int, since time.Time,
) (c *Commit, err error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	err = r.Options.Retry.Swap(ctx, func() (final bool, err error) {
		c, err = r.tryFence(ctx, ref, taskID, attempt, since)
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("fence task %s in %s: %w", taskID, ref, err)
	}
	return c, nil
}

// tryFence tries once to fence a task. If its swap is applied but the response is lost, the next call finds the fence.
func (r *Repo) tryFence(
	ctx context.Context, ref format.Ref, taskID string, attempt int, since time.Time,
) (*Commit, error) {
	h, etag, err := r.ReadHead(ctx, ref, "")
	if err != nil {
		return nil, err
	}
	c, err := r.FindTask(ctx, ref, h, taskID, UntilTime(since))
	if err != nil || c != nil || h.Fences(taskID, attempt) {
		return c, err
	}
	if h.Purging() {
		return nil, fmt.Errorf("the deleted workspace is being purged: %w", objects.ErrTemporary)
	}
	now := time.Now().UTC()
	if etag == "" {
		floor, err := r.FloorWithoutHead(ctx, ref)
		if err != nil {
			return nil, err
		}
		h = format.Head{
			Generation: floor + 1, Born: floor + 1, Commit: format.NewCommitID(), Time: now,
			Deleted: true,
		}
	}
	_, err = r.SwapHead(ctx, ref, etag, h.Fence(taskID, attempt, now))
	return nil, err
}

// Until reports whether a search of the history may end at a commit.
type Until func(generation int64, at time.Time) bool

// UntilGeneration ends a search at the generation last.
func UntilGeneration(last int64) Until {
	return func(generation int64, _ time.Time) bool { return generation <= last }
}

// UntilTime ends a search at a time, minus an allowance for clock skew.
func UntilTime(since time.Time) Until {
	return func(_ int64, at time.Time) bool { return at.Before(since.Add(-format.ClockSkew)) }
}

// FindTask returns a task's commit, or nil. It searches HEAD's recent tasks, and then one manifest after another until
// end returns true.
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
	isTask := func(m *format.Manifest) bool { return m.Header.TaskID == taskID }
	return r.findCommit(ctx, ref, name, digest, isTask, end)
}

// findCommit returns the newest commit for whose manifest match returns true, or nil. It searches one manifest after
// another, from the named one to the first at which end returns true. It skips gaps, as Walk does.
func (r *Repo) findCommit(
	ctx context.Context, ref format.Ref, name string, digest *objects.Digest, match func(*format.Manifest) bool,
	end Until,
) (*Commit, error) {
	manifests := r.newReadAhead(ref, true)
	for {
		m, err := manifests.read(ctx, name, digest)
		if format.IsDamage(err) {
			before, ok, gapErr := r.skipGap(ctx, ref, format.ManifestRef{Name: name})
			switch {
			case ok && before == nil:
				return nil, nil
			case ok:
				name, digest = before.Name, &before.Digest
				continue
			case gapErr == nil && errors.Is(err, objects.ErrNotFound):
				return nil, nil // removed by garbage collection
			}
			err = errors.Join(err, gapErr)
		}
		if err != nil {
			return nil, err
		}
		if match(m) {
			return r.toCommit(ctx, ref, m)
		}
		if m.Header.Parent == nil || end(m.Header.Generation, m.Header.Time) {
			return nil, nil
		}
		name, digest = m.Header.Parent.Name, &m.Header.Parent.Digest
	}
}

// commitAt returns the commit of a recent task.
func (r *Repo) commitAt(ctx context.Context, ref format.Ref, task format.RecentTask) (*Commit, error) {
	m, err := r.ReadManifest(ctx, ref, task.Manifest(), nil)
	if format.IsDamage(err) { // although the manifest was removed or lost, the task has committed
		return &Commit{Generation: task.Generation, TaskID: task.Task, Time: time.Unix(task.Unix, 0).UTC()}, nil
	}
	if err != nil {
		return nil, err
	}
	return r.toCommit(ctx, ref, m)
}
