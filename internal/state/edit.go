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

// Newest is the base of edits that build on whatever the newest version is.
const Newest = -1

// Edit is a change of one path that is made without a tree.
type Edit struct {
	Path    string
	Kind    string      // File, Dir or Link; empty removes the path with all below it
	Mode    os.FileMode // permission bits; 0: unchanged, of a new file 0644, of a new directory 0755
	Time    time.Time   // of modification; zero: now
	Target  string      // of a symbolic link
	Content io.Reader   // of a file; read before the next edit is requested

	// IfMatch is the ETag that the file must have, or "*" for any; IfNoneMatch "*" says that the path
	// must not exist. Empty: no condition.
	IfMatch, IfNoneMatch string
}

// EditOptions says what edits build on.
type EditOptions struct {
	// Base is the generation that was edited: later changes of others are merged per path, and a path that both sides
	// changed is a *ConflictError. 0 is the empty workspace; Newest overwrites changes of others.
	Base    int64
	Message string // for the history
}

// EditError is an edit that cannot be made, whatever the version. Nothing was committed.
type EditError struct{ Path, Why string }

// Error implements error.
func (e *EditError) Error() string { return fmt.Sprintf("path %q %s", e.Path, e.Why) }

// Edit commits changes that do not come from a tree: all of them or none. It creates missing directories. Edits
// that the newest version has already are no changes, so a call whose answer was lost may be repeated, unless it has
// conditions (IfMatch, IfNoneMatch): those hold once.
//
// Nothing was committed after *EditError, ErrQuota, ErrDeleted, *ConflictError (which unmet conditions are too), and
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
	list, err := s.readEdits(ctx, ref.Tenant, on.Set, edits)
	if err != nil {
		return Commit{}, err
	}
	for range objects.MaxRaces {
		if opts.Base == Newest {
			base = on
		}
		c, err := s.tryEdits(ctx, ref, opts, base, on, list)
		// After a lost race, edits of the newest version are made to the version that is the newest now.
		if !errors.Is(err, objects.ErrConflict) || opts.Base != Newest || !lostRace(err) {
			return c, err
		}
		if on, err = s.repo.Current(ctx, ref, on); err != nil {
			return Commit{}, err
		}
	}
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", objects.MaxRaces, objects.ErrTemporary)
}

// unmetError is an unmet condition of an edit, unlike a lost race.
type unmetError struct{ error }

func (e unmetError) Unwrap() error { return e.error }

func lostRace(err error) bool {
	_, unmet := errors.AsType[unmetError](err)
	return !unmet
}

// editBase returns the version that was edited.
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
	l, err := s.repo.Find(ctx, ref, generation)
	if err != nil {
		return nil, err
	}
	return &repo.Version{
		Head:     format.Head{Generation: generation, Commit: l.Manifest.Header.Commit},
		Manifest: l.Manifest, Set: l.Set, ReadAt: on.ReadAt,
	}, nil
}

// tryEdits makes one attempt to commit edits of base onto on.
func (s *Store) tryEdits(
	ctx context.Context, ref Ref, opts EditOptions, base, on *repo.Version, list []edited,
) (Commit, error) {
	changes, err := s.editChanges(ref, base.Set, on.Set, list)
	if err == nil {
		err = s.checkExcluded(ctx, ref.Tenant, on.Set, changes)
	}
	if err != nil {
		return Commit{}, err
	}
	if len(changes) == 0 {
		return Commit{Generation: on.Head.Generation, ID: on.Head.Commit, Time: on.Head.Time, NoChange: true}, nil
	}
	p := &repo.Proposal{
		Repo: s.repo, Ref: ref, Options: CommitOptions{Message: opts.Message}, Changes: changes,
		Base: base, On: on,
	}
	if base != on {
		if err := p.Rebase(ctx); err != nil {
			return Commit{}, err
		}
	}
	p.CheckQuota = true
	c, _, err := p.Run(ctx)
	return c, err
}

// editChanges returns the changes of base that edits make, without those that on has already.
func (s *Store) editChanges(ref Ref, base, on *format.EntrySet, list []edited) ([]format.Change, error) {
	over := map[string]*format.Entry{} // edited paths of base; nil: removed
	at := func(path string) *format.Entry {
		if e, ok := over[path]; ok {
			return e
		}
		return base.Find(path)
	}
	for _, d := range list {
		if err := d.condition(ref, on.Find(d.Path)); err != nil {
			return nil, err
		}
		switch {
		case d.entry == nil:
			for _, e := range base.Below(d.Path) {
				over[e.Path] = nil
			}
			for path := range over {
				if path == d.Path || strings.HasPrefix(path, d.Path+"/") {
					over[path] = nil
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
			over[d.Path] = e
		}
	}
	for _, path := range slices.Sorted(maps.Keys(over)) {
		if over[path] == nil {
			continue
		}
		for dir := format.ParentDir(path); dir != ""; dir = format.ParentDir(dir) {
			if e := at(dir); e == nil {
				over[dir] = &format.Entry{Path: dir, Kind: format.KindDir, Mode: 0o755}
			} else if e.Kind != format.KindDir {
				return nil, &EditError{path, fmt.Sprintf("cannot be: %q is not a directory", dir)}
			}
		}
	}
	var changes []format.Change
	for path, e := range over {
		was, is := base.Find(path), on.Find(path)
		if e.Same(was) || e.Same(is) || e.IsDir() && is.IsDir() && was == nil {
			continue
		}
		changes = append(changes, format.Change{Path: path, Entry: e})
	}
	format.SortChanges(changes)
	return changes, nil
}

// condition returns an error if a condition of the edit does not hold.
func (d *edited) condition(ref Ref, is *format.Entry) error {
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

// checkExcluded returns an error for excluded paths: the next commit of a task would remove them.
func (s *Store) checkExcluded(ctx context.Context, tenant string, on *format.EntrySet, changes []format.Change) error {
	own := on.Find(ignore.FileName)
	for _, c := range changes {
		if c.Path == ignore.FileName {
			own = c.Entry
		}
	}
	var text []byte
	if own != nil && own.Kind == format.KindFile && own.Size <= ignore.MaxFile {
		var err error
		if text, err = s.repo.ReadFile(ctx, tenant, own); err != nil {
			return err
		}
	}
	rules := tree.ExcludeRules(s.dirs.Excludes, text)
	for _, c := range changes {
		if c.Entry != nil && (rules.MatchBelow(c.Path) || c.Entry.IsDir() && rules.Match(c.Path, true)) {
			why := "is excluded by " + ignore.FileName + " or by default: the next task would remove it"
			return &EditError{c.Path, why}
		}
	}
	return nil
}
