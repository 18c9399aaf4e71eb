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
	"github.com/codefleet/codefleet/internal/state/ignore"
)

// Kinds of paths, as FileInfo and Edit name them.
const (
	File = "file"
	Dir  = "dir"
	Link = "link"
)

// Newest is the base of edits that build on whatever is there.
const Newest = -1

// Edit is one change that is made without a tree.
type Edit struct {
	Path    string
	Kind    string      // File, Dir or Link; empty removes the path with all below it
	Mode    os.FileMode // permission bits; 0: as they are, of a new file 0644, of a directory 0755
	Time    time.Time   // of modification; zero: now
	Target  string      // of a link
	Content io.Reader   // of a file; read before the next Edit is asked for

	// IfMatch is the ETag that the file must have, or "*" for any; IfNoneMatch "*" says that the path
	// must be free. Empty asks for nothing.
	IfMatch, IfNoneMatch string
}

// EditOptions say what edits build on.
type EditOptions struct {
	// Base is the generation that the edits were made to: what others changed since is merged per path,
	// and a path that both changed is a *ConflictError. 0 is the empty workspace, Newest replaces
	// whatever is there.
	Base    int64
	Message string // for the log
}

// EditError is an edit that can never be made. Nothing was committed.
type EditError struct{ Path, Why string }

func (e *EditError) Error() string { return fmt.Sprintf("path %q %s", e.Path, e.Why) }

// Edit commits changes that do not come from a tree: all of them or none. Missing directories are
// made. What is there already in the same form is no change, so a call whose answer was lost may be
// repeated, unless it has conditions (IfMatch, IfNoneMatch): those hold once.
//
// *EditError, ErrQuota, ErrDeleted, *ConflictError (also for IfMatch and IfNoneMatch), and
// ErrNotFound (Base is no longer kept): nothing was committed.
func (s *Store) Edit(ctx context.Context, ref Ref, opts EditOptions, edits iter.Seq2[Edit, error]) (Commit, error) {
	if err := ref.check(); err != nil {
		return Commit{}, err
	}
	c, err := s.edit(ctx, ref, opts, edits)
	if err != nil {
		return Commit{}, fmt.Errorf("edit %s: %w", ref, err)
	}
	return c, nil
}

func (s *Store) edit(ctx context.Context, ref Ref, opts EditOptions, edits iter.Seq2[Edit, error]) (Commit, error) {
	on, err := s.current(ctx, ref, nil)
	if err != nil {
		return Commit{}, err
	}
	base, err := s.editBase(ctx, ref, opts.Base, on)
	if err != nil {
		return Commit{}, err
	}
	list, err := s.readEdits(ctx, ref.Tenant, on.snap, edits)
	if err != nil {
		return Commit{}, err
	}
	for range objects.MaxRaces {
		if opts.Base == Newest {
			base = on
		}
		c, err := s.tryEdits(ctx, ref, opts, base, on, list)
		// Somebody else was faster. Edits of whatever is there are made to what is there now.
		if !errors.Is(err, ErrConflict) || opts.Base != Newest || !lostRace(err) {
			return c, err
		}
		if on, err = s.current(ctx, ref, on); err != nil {
			return Commit{}, err
		}
	}
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", objects.MaxRaces, objects.ErrTemporary)
}

// unmetError marks a condition of an edit that did not hold, to tell it from a lost race.
type unmetError struct{ error }

func (e unmetError) Unwrap() error { return e.error }

func lostRace(err error) bool {
	_, unmet := errors.AsType[unmetError](err)
	return !unmet
}

// editBase returns the version that edits were made to.
func (s *Store) editBase(ctx context.Context, ref Ref, generation int64, on *version) (*version, error) {
	switch generation {
	case Newest, on.head.Generation:
		return on, nil
	case 0:
		return &version{head: on.head, snap: emptySnapshot, at: on.at}, nil
	}
	if on.head.Deleted || on.head.Born > generation+1 || on.head.Generation < generation {
		return nil, ErrDeleted
	}
	l, err := s.find(ctx, ref, generation)
	if err != nil {
		return nil, err
	}
	return &version{head: head{Generation: generation, Commit: l.man.header.Commit}, man: l.man, snap: l.snap, at: on.at}, nil
}

// tryEdits commits edits of base onto on, once.
func (s *Store) tryEdits(ctx context.Context, ref Ref, opts EditOptions, base, on *version, list []edited) (Commit, error) {
	changes, err := s.editChanges(ref, base.snap, on.snap, list)
	if err == nil {
		err = s.checkExcluded(ctx, ref.Tenant, on.snap, changes)
	}
	if err != nil {
		return Commit{}, err
	}
	if len(changes) == 0 {
		return Commit{Generation: on.head.Generation, ID: on.head.Commit, Time: on.head.Time, NoChange: true}, nil
	}
	p := &proposal{store: s, ref: ref, change: Change{Message: opts.Message}, upload: &upload{changes: changes}, base: base, on: on, id: newCommitID()}
	if base != on {
		if err := p.rebase(ctx); err != nil {
			return Commit{}, err
		}
	}
	p.unchecked = true
	c, _, err := p.run(ctx)
	return c, err
}

// editChanges turns edits into changes of base, but for those that on has already.
func (s *Store) editChanges(ref Ref, base, on *snapshot, list []edited) ([]change, error) {
	over := map[string]*entry{} // base with the edits made; nil: removed
	at := func(path string) *entry {
		if e, ok := over[path]; ok {
			return e
		}
		return base.find(path)
	}
	for _, d := range list {
		if err := d.condition(ref, on.find(d.Path)); err != nil {
			return nil, err
		}
		switch {
		case d.entry == nil:
			for _, e := range base.below(d.Path) {
				over[e.Path] = nil
			}
			for path := range over {
				if path == d.Path || strings.HasPrefix(path, d.Path+"/") {
					over[path] = nil
				}
			}
		case d.entry.Kind != kindDir && at(d.Path).isDir():
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
		for dir := parent(path); dir != ""; dir = parent(dir) {
			if e := at(dir); e == nil {
				over[dir] = &entry{Path: dir, Kind: kindDir, Mode: 0o755}
			} else if e.Kind != kindDir {
				return nil, &EditError{path, fmt.Sprintf("cannot be: %q is not a directory", dir)}
			}
		}
	}
	var changes []change
	for path, e := range over {
		was, is := base.find(path), on.find(path)
		if e.same(was) || e.same(is) || e.isDir() && is.isDir() && was == nil {
			continue
		}
		changes = append(changes, change{path, e})
	}
	sortChanges(changes)
	return changes, nil
}

// condition checks what an edit asks of what is there.
func (d *edited) condition(ref Ref, is *entry) error {
	ok := true
	switch {
	case d.IfNoneMatch != "":
		ok = is == nil
	case d.IfMatch == "*":
		ok = is != nil
	case d.IfMatch != "":
		ok = is != nil && is.Kind == kindFile && is.etag() == d.IfMatch
	}
	if ok {
		return nil
	}
	return unmetError{&ConflictError{Ref: ref, Paths: []string{d.Path}}}
}

// below returns path, if it is there, and everything in it.
func (s *snapshot) below(path string) []*entry {
	var out []*entry
	if e := s.find(path); e != nil {
		out = append(out, e)
	}
	i, _ := slices.BinarySearchFunc(s.entries, path+"/", func(e *entry, p string) int { return strings.Compare(e.Path, p) })
	for ; i < len(s.entries) && strings.HasPrefix(s.entries[i].Path, path+"/"); i++ {
		out = append(out, s.entries[i])
	}
	return out
}

// checkExcluded refuses what the commit of the next task would remove again.
func (s *Store) checkExcluded(ctx context.Context, tenant string, on *snapshot, changes []change) error {
	own := on.find(ignore.FileName)
	for _, c := range changes {
		if c.path == ignore.FileName {
			own = c.entry
		}
	}
	var text []byte
	if own != nil && own.Kind == kindFile && own.Size <= ignore.MaxFile {
		var err error
		if text, err = s.readEntry(ctx, tenant, own); err != nil {
			return err
		}
	}
	rules := s.excludes(text)
	for _, c := range changes {
		if c.entry != nil && (rules.MatchBelow(c.path) || c.entry.isDir() && rules.Match(c.path, true)) {
			return &EditError{c.path, "is excluded by " + ignore.FileName + " or by default: the next task would remove it"}
		}
	}
	return nil
}
