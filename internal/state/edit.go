package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/ignore"
	"github.com/codefleet/codefleet/internal/state/repo"
	"github.com/codefleet/codefleet/internal/state/tree"
)

// Newest is the EditOptions.Base of edits that apply to the newest version, whatever it is.
const Newest = -1

// Edit is a change of one path that is made without a tree.
type Edit struct {
	Path    string
	Kind    string      // File, Dir or Symlink; empty removes the path and everything below it
	Mode    os.FileMode // permission bits; 0 keeps them, or means 0644 for a new file and 0755 for a new directory
	Time    time.Time   // modification time; zero means now
	Target  string      // symbolic links only
	Content io.Reader   // files only; read before the next edit is requested

	// IfMatch is the ETag that the file must have, or "*" for any existing path. IfNoneMatch "*" requires that the path
	// does not exist. If they are empty, there is no condition.
	IfMatch, IfNoneMatch string
}

// EditOptions are the options of one call of Store.Edit.
type EditOptions struct {
	// Base is the generation that was edited. Later changes are merged per path, and a path that both sides changed is
	// a *ConflictError. 0 is the empty workspace. Newest overwrites the changes of others.
	Base    int64
	Message string // for the history
}

// EditError reports an edit that cannot be made, for example one that writes a file where a directory is. Nothing was
// committed.
type EditError struct{ Path, Why string }

// Error implements error.
func (e *EditError) Error() string { return fmt.Sprintf("path %q %s", e.Path, e.Why) }

// Edit commits changes that do not come from a tree: all of them or none. It creates missing directories. Edits that
// the newest version already contains change nothing, so a call whose response was lost may be repeated. A call with
// conditions (IfMatch, IfNoneMatch) may not be repeated: after its own commit, they no longer hold.
//
// Nothing was committed after *EditError, ErrQuota, ErrDeleted, *ConflictError (also for an unmet condition), and
// ErrNotFound (Base is no longer kept).
func (s *Store) Edit(ctx context.Context, ref Ref, opts EditOptions, edits iter.Seq2[Edit, error]) (Commit, error) {
	if err := ref.Check(); err != nil {
		return Commit{}, err
	}
	c, err := s.edit(ctx, ref, opts, edits)
	if err != nil {
		return Commit{}, fmt.Errorf("edit %s: %w", ref, err)
	}
	return c, nil
}

func (s *Store) edit(ctx context.Context, ref Ref, opts EditOptions, edits iter.Seq2[Edit, error]) (Commit, error) {
	on, err := s.repo.Current(ctx, ref, nil)
	if err != nil {
		return Commit{}, err
	}
	base, err := s.editBase(ctx, ref, opts.Base, on)
	if err != nil {
		return Commit{}, err
	}
	began := time.Now()
	list, err := s.storeEdits(ctx, ref.Tenant, on.Set, edits)
	if err != nil {
		return Commit{}, err
	}
	for range objects.MaxRaces {
		if opts.Base == Newest {
			base = on
		}
		c, err := s.tryEdits(ctx, ref, opts, base, on, began, list)
		// After a lost race, edits of the newest version are applied to what is now the newest.
		_, unmet := errors.AsType[unmetError](err)
		if !errors.Is(err, objects.ErrConflict) || opts.Base != Newest || unmet {
			return c, err
		}
		if on, err = s.repo.Current(ctx, ref, on); err != nil {
			return Commit{}, err
		}
	}
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", objects.MaxRaces, objects.ErrTemporary)
}

// unmetError marks a conflict that is an unmet condition of an edit, not a lost race.
type unmetError struct{ error }

func (e unmetError) Unwrap() error { return e.error }

// editBase returns the version that was edited. on is the newest version.
func (s *Store) editBase(ctx context.Context, ref Ref, generation int64, on *repo.Version) (*repo.Version, error) {
	switch generation {
	case Newest, on.Head.Generation:
		return on, nil
	case 0:
		return &repo.Version{Head: on.Head, Set: format.EmptySet, ReadAt: on.ReadAt}, nil
	}
	if on.Head.Deleted || on.Head.Born > generation+1 || on.Head.Generation < generation {
		return nil, ErrDeleted
	}
	if on.Head.Born == generation+1 { // the workspace was deleted then, and is in use again
		return &repo.Version{Head: on.Head, Set: format.EmptySet, ReadAt: on.ReadAt}, nil
	}
	l, err := s.repo.Find(ctx, ref, generation)
	if err != nil {
		return nil, err
	}
	return &repo.Version{
		Head:     format.Head{Generation: generation, Commit: l.Manifest.Header.Commit},
		Manifest: l.Manifest, Set: l.Set, ReadAt: on.ReadAt,
	}, nil
}

// tryEdits attempts once to commit edits, which were made to base, onto the version on. The caller began to store their
// content at the time began.
func (s *Store) tryEdits(
	ctx context.Context, ref Ref, opts EditOptions, base, on *repo.Version, began time.Time, list []storedEdit,
) (Commit, error) {
	if err := checkConditions(ref, on.Set, list); err != nil {
		return Commit{}, err
	}
	changes, err := editChanges(base.Set, on.Set, list)
	if err == nil {
		err = s.checkExcluded(ctx, ref.Tenant, on.Set, changes)
	}
	if err != nil {
		return Commit{}, err
	}
	if len(changes) == 0 {
		return on.NoChange(), nil
	}
	p := &repo.Proposal{
		Repo: s.repo, Ref: ref, Options: CommitOptions{Message: opts.Message}, Changes: changes,
		Base: base, On: on, Began: began,
	}
	if base != on {
		if err := p.Rebase(ctx); err != nil {
			return Commit{}, err
		}
	}
	p.CheckQuota = true
	p.Accepts = func(v *repo.Version) error { return checkConditions(ref, v.Set, list) }
	c, _, err := p.Run(ctx)
	return c, err
}

// editChanges returns the changes that edits make to base, without those that on has already.
func editChanges(base, on *format.EntrySet, list []storedEdit) ([]format.Change, error) {
	edited := map[string]*format.Entry{} // by path; nil if the path is removed
	at := func(path string) *format.Entry {
		if e, ok := edited[path]; ok {
			return e
		}
		return base.Find(path)
	}
	for _, d := range list {
		switch {
		case d.entry == nil:
			for _, e := range base.Below(d.Path) {
				edited[e.Path] = nil
			}
			for path := range edited {
				if path == d.Path || strings.HasPrefix(path, d.Path+"/") {
					edited[path] = nil
				}
			}
		case d.entry.Kind != format.KindDir && at(d.Path).IsDir():
			return nil, &EditError{d.Path, "is a directory"}
		default:
			e := d.entry
			if old := at(d.Path); d.Mode == 0 && old != nil && old.Kind == e.Kind {
				kept := *e
				kept.Mode, e = old.Mode, &kept
			}
			edited[d.Path] = e
		}
	}
	for _, path := range slices.Sorted(maps.Keys(edited)) {
		if edited[path] == nil {
			continue
		}
		for dir := format.ParentDir(path); dir != ""; dir = format.ParentDir(dir) {
			if e := at(dir); e == nil {
				edited[dir] = format.NewDir(dir)
			} else if e.Kind != format.KindDir {
				return nil, &EditError{path, fmt.Sprintf("cannot exist: %q is not a directory", dir)}
			}
		}
	}
	var changes []format.Change
	for path, e := range edited {
		was, is := base.Find(path), on.Find(path)
		if e.Same(was) || e.Same(is) || e.IsDir() && is.IsDir() && was == nil {
			continue
		}
		changes = append(changes, format.Change{Path: path, Entry: e})
	}
	format.SortChanges(changes)
	return changes, nil
}

// checkConditions returns an error if a condition of an edit does not hold in a version.
func checkConditions(ref Ref, set *format.EntrySet, list []storedEdit) error {
	for _, d := range list {
		if err := d.checkCondition(ref, set.Find(d.Path)); err != nil {
			return err
		}
	}
	return nil
}

// checkCondition returns an error if a condition of the edit does not hold for the path's current entry.
func (d *storedEdit) checkCondition(ref Ref, is *format.Entry) error {
	ok := true
	switch {
	case d.IfNoneMatch != "":
		ok = is == nil
	case d.IfMatch == "*":
		ok = is != nil
	case d.IfMatch != "":
		ok = is != nil && is.Kind == format.KindFile && is.ETag() == d.IfMatch
	}
	if ok {
		return nil
	}
	return unmetError{&ConflictError{Ref: ref, Paths: []string{d.Path}}}
}

// checkExcluded returns an error if changes write an excluded path, which the next task's commit would remove.
func (s *Store) checkExcluded(ctx context.Context, tenant string, on *format.EntrySet, changes []format.Change) error {
	file := on.Find(ignore.FileName)
	for _, c := range changes {
		if c.Path == ignore.FileName {
			file = c.Entry
		}
	}
	var text []byte
	if file != nil && file.Kind == format.KindFile {
		var err error
		if text, err = ignore.Read(s.repo.Open(ctx, tenant, file)); err != nil {
			return err
		}
	}
	rules := tree.ExcludeRules(s.dirs.Excludes, text)
	for _, c := range changes {
		if c.Entry != nil && (rules.MatchBelow(c.Path) || c.Entry.IsDir() && rules.Match(c.Path, true)) {
			return &EditError{
				c.Path, "is excluded by " + ignore.FileName + " or by default: the next task would remove it",
			}
		}
		if err := rules.Err(); err != nil {
			return format.OverLimit(err)
		}
	}
	return nil
}
