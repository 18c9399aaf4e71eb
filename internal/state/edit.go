package state

import (
	"bytes"
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

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"

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
	for range commitTries {
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
	return Commit{}, fmt.Errorf("lost %d races in a row: %w", commitTries, ErrTemporary)
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

// edited is an edit whose content is in the store.
type edited struct {
	Edit
	entry *entry // nil: removed
}

// readEdits stores the content of edits.
func (s *Store) readEdits(ctx context.Context, tenant string, known *snapshot, edits iter.Seq2[Edit, error]) ([]edited, error) {
	const many = 64 // edits that make an index of known content worth its while
	p := s.newPacker(ctx, tenant, known.blobFinder(many))
	var list []edited
	var total int64
	var err error
	buf, scratch := s.buffer(), s.buffer()
	defer func() { s.buffers.Put(&buf); s.buffers.Put(&scratch) }()
	for e, failed := range edits {
		if err = failed; err != nil {
			break
		}
		var d edited
		if d, err = s.readEdit(p, e, s.opts.Quota.Bytes-total, &buf, &scratch); err != nil {
			break
		}
		if d.entry != nil {
			total += d.entry.Size
		}
		list = append(list, d)
		if len(list) > s.opts.Quota.Files {
			err = &QuotaError{"number of files", int64(len(list)), int64(s.opts.Quota.Files), nil}
			break
		}
	}
	return list, errors.Join(err, p.finish())
}

func (s *Store) readEdit(p *packer, e Edit, room int64, buf, scratch *[]byte) (edited, error) {
	if err := s.checkEdit(e); err != nil {
		return edited{}, err
	}
	out := &entry{Path: e.Path, Mode: uint32(e.Mode.Perm()), MTime: e.Time.UnixNano()}
	if e.Time.IsZero() {
		out.MTime = time.Now().UnixNano()
	}
	switch e.Kind {
	case "":
		return edited{e, nil}, nil
	case Dir:
		out.Kind, out.MTime = kindDir, 0
		if out.Mode == 0 {
			out.Mode = 0o755
		}
	case Link:
		out.Kind, out.Mode, out.Link, out.MTime = kindLink, 0o777, e.Target, 0
	case File:
		out.Kind = kindFile
		if out.Mode == 0 {
			out.Mode = 0o644
		}
		if err := s.readContent(p, out, e.Content, room, buf, scratch); err != nil {
			return edited{}, err
		}
	}
	e.Content = nil
	return edited{e, out}, out.check()
}

func (s *Store) checkEdit(e Edit) error {
	if err := checkPath(e.Path); err != nil {
		return &EditError{e.Path, "is not a clean relative path: " + err.Error()}
	}
	if s.reserved(e.Path) {
		return &EditError{e.Path, "is reserved: " + top(e.Path) + " is put there by the fleet"}
	}
	if depth := int64(1 + strings.Count(e.Path, "/")); depth > int64(s.opts.Quota.Depth) {
		return &QuotaError{"depth", depth, int64(s.opts.Quota.Depth), []string{e.Path}}
	}
	switch e.Kind {
	case "", File, Dir:
	case Link:
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 || len(e.Target) > maxPath {
			return &EditError{e.Path, "is a link without a usable target"}
		}
	default:
		return &EditError{e.Path, fmt.Sprintf("is of the unknown kind %q", e.Kind)}
	}
	return nil
}

// readContent stores a file of unknown length, at most what the quota leaves.
func (s *Store) readContent(p *packer, e *entry, r io.Reader, room int64, buf, scratch *[]byte) error {
	*buf = slices.Grow((*buf)[:0], maxBlob+1)[:maxBlob+1]
	*scratch = slices.Grow((*scratch)[:0], maxBlob)
	n, ended, err := fill(r, *buf)
	if err != nil {
		return err
	}
	if ended {
		e.Size = int64(n)
		if e.Size > room {
			return s.overQuota(e, room)
		}
		if n == 0 {
			return nil
		}
		b, err := p.add((*buf)[:n], *scratch)
		if err == nil {
			e.Blobs = []blob{b}
		}
		return err
	}
	limit := min(room, s.opts.Quota.Largest)
	counted := &counter{r: io.LimitReader(io.MultiReader(bytes.NewReader(bytes.Clone(*buf)), r), limit+1)}
	chunker, err := chunkers.NewChunker("fastcdc", counted, &chunkers.ChunkerOpts{MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: maxBlob})
	if err != nil {
		return err
	}
	for last := false; !last; {
		data, err := chunker.Next()
		last = errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if counted.n > limit {
			e.Size = counted.n
			return s.overQuota(e, room)
		}
		if len(data) > 0 {
			b, err := p.add(data, *scratch)
			if err != nil {
				return err
			}
			e.Blobs = append(e.Blobs, b)
		}
	}
	e.Size = counted.n
	return nil
}

// fill reads until b is full or r ends. A stream that broke is not one that ended.
func fill(r io.Reader, b []byte) (n int, ended bool, err error) {
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

func (s *Store) overQuota(e *entry, room int64) error {
	if e.Size > s.opts.Quota.Largest {
		return &QuotaError{"largest file in bytes", e.Size, s.opts.Quota.Largest, []string{e.Path}}
	}
	return &QuotaError{"total in bytes", s.opts.Quota.Bytes - room + e.Size, s.opts.Quota.Bytes, []string{e.Path}}
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
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
