package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

const inlineResult = 16 << 10 // bytes; larger results are stored as blobs

// Commit makes the tree's content the newest version, merged with what others committed since Checkout. It is atomic,
// and happens at most once per task id: if another run has committed, its commit is returned with Already set.
//
// If both sides changed a path, Commit returns a *ConflictError. There is no conflict if the path is a state document
// and the changes are to different top-level keys, if it is a directory on both sides, or if it is a view (see
// WriteView). With KeepBoth, Commit keeps both versions of a conflicting path instead of returning an error. After
// ErrQuota, ErrDeleted, ErrFenced and *ConflictError, nothing was committed. After any other error the commit may have
// happened; call Applied to find out, or Commit again.
//
// Every Commit needs a Checkout before it. After NoChange, or a commit that needed no merge, the next Checkout costs
// one conditional GET.
func (s *Store) Commit(ctx context.Context, t *Tree, c CommitOptions) (Commit, error) {
	switch {
	case t.base == nil || !t.inUse:
		return Commit{}, fmt.Errorf("commit %s: nothing is checked out", t.ref)
	case len(c.TaskID) > format.MaxTaskID:
		return Commit{}, fmt.Errorf("commit %s: the task id is %d bytes; the limit is %d",
			t.ref, len(c.TaskID), format.MaxTaskID)
	case len(c.Result) > repo.MaxResult:
		return Commit{}, fmt.Errorf("commit %s: the result is %d bytes; the limit is %d",
			t.ref, len(c.Result), repo.MaxResult)
	}
	out, err := s.commit(ctx, t, c)
	if err != nil {
		return Commit{}, fmt.Errorf("commit %s: %w", t.ref, s.repo.DiskError(ctx, err))
	}
	return out, nil
}

func (s *Store) commit(ctx context.Context, t *Tree, c CommitOptions) (Commit, error) {
	if t.base.Head.Fences(c.TaskID, c.Attempt) {
		return Commit{}, ErrFenced
	}
	if c.TaskID != "" && (c.Attempt > 1 || !c.Since.IsZero()) {
		end := repo.UntilTime(c.Since)
		// While no other run can have begun, the tasks that HEAD lists suffice. Wall times count, because the machine
		// may have been suspended.
		if c.Attempt == 1 && time.Now().Round(0).Before(c.AloneUntil.Round(0)) {
			end = repo.UntilGeneration(t.base.Head.Generation)
		}
		done, err := s.repo.FindTask(ctx, t.ref, t.base.Head, c.TaskID, end)
		if done != nil || err != nil {
			return already(t, done), err
		}
	}
	var large []byte
	if len(c.Result) > inlineResult {
		large = c.Result
	}
	began := time.Now()
	// Wall times count, because the machine may have been suspended.
	recent := began.Round(0).Sub(t.base.ReadAt.Round(0)) < repo.DedupAge
	up, err := t.dir.Diff(ctx, t.base.Set, recent, large, s.repo.HoldLimit(t.base))
	if err != nil {
		return Commit{}, err
	}
	if onlyViews(up.Changes, t.views) {
		if err := up.Wait(); err != nil {
			return Commit{}, err
		}
		out, err := s.unchanged(ctx, t, c)
		if !out.Already {
			out.Rewritten = up.Rewritten
		}
		return out, err
	}
	defer func() { _ = up.Wait() }() // uploads must not outlive the call
	p := &repo.Proposal{
		Repo: s.repo, Ref: t.ref, Options: c, Changes: up.Changes, Result: up.Blobs, Stored: up.Wait,
		Held: up.Held, Base: t.base, On: t.base, Views: t.views, Began: began,
	}
	out, v, err := p.Run(ctx)
	if !out.Already {
		out.Rewritten = up.Rewritten
	}
	if err != nil && !errors.Is(err, ErrDeleted) {
		return Commit{}, err // the caller may try again, keep both, or revert
	}
	// The directory is as it was scanned. That is exactly a version only if this call committed, without a merge.
	t.inUse, t.base = false, nil
	if err == nil && v != nil && !p.Merged {
		t.base = v
		if p.Relocation != nil {
			t.dir.Adopt(v.Set)
		}
	}
	return out, err
}

// onlyViews reports whether changes concern nothing but views, and the directories that they are in.
func onlyViews(changes []format.Change, views []string) bool {
	for _, c := range changes {
		isParent := func(view string) bool { return strings.HasPrefix(view, c.Path+"/") }
		if !slices.Contains(views, c.Path) && (!c.Entry.IsDir() || !slices.ContainsFunc(views, isParent)) {
			return false
		}
	}
	return true
}

// unchanged completes a Commit without changes. A first run needs no request.
func (s *Store) unchanged(ctx context.Context, t *Tree, c CommitOptions) (Commit, error) {
	if c.TaskID != "" && c.Attempt > 1 {
		v, err := s.repo.Current(ctx, t.ref, t.base)
		if err != nil {
			return Commit{}, err
		}
		if v.Head.Fences(c.TaskID, c.Attempt) {
			return Commit{}, ErrFenced
		}
		done, err := s.repo.FindTask(ctx, t.ref, v.Head, c.TaskID, repo.UntilGeneration(t.base.Head.Generation))
		if done != nil || err != nil {
			return already(t, done), err
		}
	}
	t.inUse = len(t.views) > 0 // if views were written, the directory is not as it was checked out
	base := &t.base.Head
	return Commit{
		Generation: base.Generation, ID: base.Commit, Time: base.Time, NoChange: true, Result: c.Result,
		TaskID: c.TaskID, Attempt: c.Attempt, Message: c.Message,
	}, nil
}

// already completes a Commit of a task that another run has committed; done is nil after an error.
func already(t *Tree, done *Commit) Commit {
	if done == nil {
		return Commit{}
	}
	t.base = nil
	done.Already = true
	return *done
}
