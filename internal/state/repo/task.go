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
// since the given time. A zero time searches all of the history that is kept.
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
	return nil, fmt.Errorf("look for task %s in %s: %w", taskID, ref, err)
}

// until says where a walk into the past may end: at a commit for which it is true.
type until func(generation int64, at time.Time) bool

func UntilGeneration(last int64) until {
	return func(generation int64, _ time.Time) bool { return generation <= last }
}

// UntilTime allows for clocks of workers that differ.
func UntilTime(since time.Time) until {
	return func(_ int64, at time.Time) bool { return at.Before(since.Add(-format.ClockSkew)) }
}

// FindTask looks for a task's commit: in the list that HEAD carries, and behind
// that manifest by manifest.
func (r *Repo) FindTask(ctx context.Context, ref format.Ref, h format.Head, taskID string, end until) (*Commit, error) {
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
		m, err := r.HeaderOf(ctx, ref, name, digest)
		if errors.Is(err, objects.ErrNotFound) {
			return nil, nil // older than what is kept
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
	m, err := r.HeaderOf(ctx, ref, task.Manifest(), nil)
	if format.IsDamage(err) { // collected, or lost: that it was applied is all that is left
		return &Commit{Generation: task.Generation, TaskID: task.Task, Time: time.Unix(task.Unix, 0).UTC()}, nil
	}
	if err != nil {
		return nil, err
	}
	return r.toCommit(ctx, ref, m)
}
