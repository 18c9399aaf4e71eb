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
	Bytes int64  `json:"bytes"` // size after the change, or before a removal
}

// Log returns at most limit commits of a workspace, newest first. 0 means no limit. The commits have no Result.
func Log(ctx context.Context, r *repo.Repo, ref format.Ref, limit int) ([]repo.Commit, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	var log []repo.Commit
	many := map[int]format.Header{} // headers that do not list what the commit changed, by index in log
	err := r.Walk(ctx, ref, func(_ format.ManifestRef, m *format.Manifest) bool {
		if m.Header.ManyChanged {
			many[len(log)] = m.Header
		}
		log = append(log, repo.CommitOf(m))
		return limit == 0 || len(log) < limit
	})
	for i, h := range many {
		err = errors.Join(err, r.SetChanged(ctx, ref, h, &log[i]))
	}
	if err != nil {
		return nil, fmt.Errorf("read log of %s: %w", ref, err)
	}
	return log, nil
}

// Diff returns what changed from one generation to another. Generation 0 means the newest.
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

// Restore commits an earlier generation again. It copies only content that garbage collection may be about to remove.
// The versions in between stay.
func Restore(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, message string) (repo.Commit, error) {
	c, err := restore(ctx, r, ref, generation, message)
	if err != nil {
		return repo.Commit{}, fmt.Errorf("restore: %w", err)
	}
	return c, nil
}

func restore(ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, message string) (repo.Commit, error) {
	if err := ref.Check(); err != nil {
		return repo.Commit{}, err
	}
	began := time.Now()
	marked, err := r.Marked(ctx, ref.Tenant)
	if err != nil {
		return repo.Commit{}, err
	}
	fresh := r.Fresh() // cached objects may have been removed
	old, err := fresh.Find(ctx, ref, generation)
	if err != nil {
		return repo.Commit{}, err
	}
	moved, err := fresh.Secure(ctx, ref.Tenant, marked, old.Set)
	if err != nil {
		return repo.Commit{}, err
	}
	defer func() { _ = moved.Stored() }() // uploads must not outlive the call
	return r.Replace(ctx, ref, old.Set, moved, began, message)
}

// Fork starts a workspace of the same tenant, with the name `to`, from a generation of ref. Generation 0 means the
// newest. Fork also finds retained versions. It returns objects.ErrConflict if the workspace exists.
func Fork(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, to string, message string,
) (repo.Commit, error) {
	target := format.Ref{Tenant: ref.Tenant, Workspace: to}
	if err := target.Check(); err != nil {
		return repo.Commit{}, err
	}
	c, err := fork(ctx, r, ref, generation, target, message)
	if err != nil {
		return repo.Commit{}, fmt.Errorf("fork: %w", err)
	}
	return c, nil
}

func fork(
	ctx context.Context, r *repo.Repo, ref format.Ref, generation int64, target format.Ref, message string,
) (repo.Commit, error) {
	began := time.Now()
	marked, err := r.Marked(ctx, ref.Tenant)
	if err != nil {
		return repo.Commit{}, err
	}
	old, err := findRetained(ctx, r.Fresh(), ref, generation) // cached objects may have been removed
	if err != nil {
		return repo.Commit{}, err
	}
	isNew := func(v *repo.Version) error {
		if v.Head.Manifest != nil {
			return fmt.Errorf("workspace %s exists: %w", target, objects.ErrConflict)
		}
		return nil
	}
	v, err := r.Current(ctx, target, nil)
	if err == nil {
		err = isNew(v)
	}
	if err != nil {
		return repo.Commit{}, err
	}
	if err := r.Fold(ctx, ref); err != nil { // the target refers to packs that HEAD may carry
		return repo.Commit{}, err
	}
	changes := v.Set.Diff(old.Set)
	if len(changes) == 0 {
		return v.NoChange(), nil
	}
	moved, err := r.Secure(ctx, ref.Tenant, marked, old.Set)
	if err != nil {
		return repo.Commit{}, err
	}
	defer func() { _ = moved.Stored() }() // uploads must not outlive the call
	p := &repo.Proposal{
		Repo: r, Ref: target, Options: repo.CommitOptions{Message: message}, Changes: changes, Base: v, On: v,
		Relocation: moved, Accepts: isNew, Began: began,
	}
	c, _, err := p.Run(ctx)
	return c, err
}

// Delete deletes a workspace. Commits that build on earlier versions fail with repo.ErrDeleted; later tasks begin with
// an empty workspace. Garbage collection removes the objects after the grace time. A missing workspace counts as
// deleted, unless its HEAD is lost: then Delete returns objects.ErrCorrupt (see repo.Repo.FindHead).
func Delete(ctx context.Context, r *repo.Repo, ref format.Ref) error {
	return deleteIf(ctx, r, ref, func(format.Head) error { return nil })
}

// DeleteUnchanged is like Delete, but returns objects.ErrConflict if the newest commit of the workspace is not the one
// with the id commit.
func DeleteUnchanged(ctx context.Context, r *repo.Repo, ref format.Ref, commit string) error {
	return deleteIf(ctx, r, ref, func(h format.Head) error {
		if h.Commit != commit {
			return fmt.Errorf("generation %d was committed meanwhile: %w", h.Generation, objects.ErrConflict)
		}
		return nil
	})
}

// deleteIf deletes a workspace unless check returns an error for its HEAD. It does not delete a workspace that was
// created after its first read of HEAD: then the one to delete is gone, perhaps by a swap whose response was lost.
func deleteIf(ctx context.Context, r *repo.Repo, ref format.Ref, check func(format.Head) error) error {
	if err := ref.Check(); err != nil {
		return err
	}
	id, first := format.NewCommitID(), int64(0)
	err := r.Options.Retry.Swap(ctx, func() (final bool, err error) {
		h, etag, err := r.FindHead(ctx, ref)
		if err != nil {
			return true, err
		}
		if first == 0 {
			first = h.Generation
		}
		if h.Commit == id { // applied, and the response was lost
			r.Notify(ref)
		}
		if h.Manifest == nil || h.Born > first {
			return true, nil
		}
		if err := check(h); err != nil {
			return true, err
		}
		if err := r.StoreCarried(ctx, ref, h.Carried); err != nil {
			return true, err
		}
		next := &format.Head{
			Generation: h.Generation + 1, Commit: id, Time: time.Now().UTC(), Deleted: true, Born: h.Born,
			Recent: h.Recent, Floor: h.Floor, FloorTime: h.FloorTime, Fenced: h.Fenced,
		}
		if _, err = r.SwapHead(ctx, ref, etag, next); err == nil {
			r.Notify(ref)
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", ref, err)
	}
	return nil
}
