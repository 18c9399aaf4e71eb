package dirsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// errChanging is an upload of a file that was written meanwhile.
var errChanging = errors.New("the file changed while it was read")

// unsteady is how often a directory is looked at again because files changed under the reading.
const unsteady = 4

// difference is one path that is not what both sides had when they met.
type difference struct {
	path         string
	here         *local
	there        *Entry
	ours, theirs bool // who changed it
}

// comparison is what is different on both sides.
type comparison struct {
	generation int64
	entries    []Entry // of that generation: all of them
	list       []difference
	skipped    []string
}

// compare looks at both sides.
func (f *Folder) compare(ctx context.Context) (c comparison, err error) {
	if c.generation, err = f.remote.Newest(ctx); err != nil {
		return c, err
	}
	if c.entries, err = f.remote.Files(ctx, c.generation); err != nil {
		return c, err
	}
	rules, began := f.rules(), time.Now()
	here, skipped, err := f.scan(rules)
	if err != nil {
		return c, err
	}
	entries := c.entries
	there := map[string]*Entry{}
	paths := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		switch {
		case rules.MatchBelow(e.Path) || e.Kind == Dir && rules.Match(e.Path, true):
		case !exchangeable(e.Path) || e.Kind == Link && leadsOut(e):
			skipped = append(skipped, e.Path)
		default:
			there[e.Path], paths[e.Path] = e, true
		}
	}
	for p := range here {
		paths[p] = true
	}
	for p := range f.met.Paths {
		paths[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		d := difference{path: p, here: here[p], there: there[p]}
		if slices.Contains(skipped, p) {
			continue
		}
		if d.ours, err = f.changed(p, d.here, began); err != nil {
			return c, err
		}
		k := f.met.Paths[p]
		d.theirs = k == nil && d.there != nil || k != nil && !k.same(d.there)
		if d.ours || d.theirs {
			if err := f.agree(&d, began); err != nil {
				return c, err
			}
		}
		if d.ours || d.theirs {
			c.list = append(c.list, d)
		}
	}
	c.skipped = skipped
	return c, nil
}

// agree finds out that both sides have come to the same.
func (f *Folder) agree(d *difference, began time.Time) error {
	same, err := f.holds(d.path, d.here, d.there)
	if err != nil || !same {
		return err
	}
	d.ours, d.theirs = false, false
	f.meet(d.path, d.there, d.here, began)
	return nil
}

// meet remembers that both sides have the same.
func (f *Folder) meet(p string, e *Entry, l *local, began time.Time) {
	if e == nil {
		delete(f.met.Paths, p)
		return
	}
	k := &known{Entry: *e}
	if l != nil && l.kind == File {
		k.Stat = l.stat.unlessRacy(began)
	}
	f.met.Paths[p] = k
}

// Pull brings what changed in the workspace here. What changed here only stays as it is.
func (f *Folder) Pull(ctx context.Context, policy Policy) (Report, error) {
	c, err := f.compare(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Generation: c.generation, Skipped: c.skipped}
	var todo []difference
	for _, d := range c.list {
		switch {
		case !d.theirs:
			continue
		// only modes differ
		case d.ours && d.here != nil && d.here.kind == Dir && d.there != nil && d.there.Kind == Dir:
			f.meet(d.path, d.there, nil, time.Now())
			continue
		case d.ours && policy == Ours:
			f.meet(d.path, d.there, nil, time.Now()) // ours is a change of that
			continue
		case d.ours && policy != Theirs:
			r.Conflicts = append(r.Conflicts, d.path)
			d.ours = d.here != nil // an edit there is worth more than a removal here
		}
		todo = append(todo, d)
	}
	if len(r.Conflicts) > 0 && policy == Refuse {
		return r, &ConflictError{r.Conflicts}
	}
	err = f.apply(ctx, c.generation, todo, policy, &r)
	slices.Sort(r.Conflicts)
	r.Conflicts = slices.Compact(r.Conflicts)
	return r, errors.Join(err, f.save())
}

// Push makes what changed here a commit of the workspace. What changed there only stays as it is.
// Policy is Refuse or Ours.
func (f *Folder) Push(ctx context.Context, message string, policy Policy) (Report, error) {
	var r Report
	var err error
	for range unsteady {
		if r, err = f.push(ctx, message, policy); !errors.Is(err, errChanging) {
			break
		}
	}
	return r, err
}

func (f *Folder) push(ctx context.Context, message string, policy Policy) (Report, error) {
	c, err := f.compare(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Generation: c.generation, Skipped: c.skipped}
	gone := c.gone()
	var edits []Edit
	for _, d := range c.list {
		switch {
		case !d.ours:
			continue
		case d.theirs && policy != Ours:
			r.Conflicts = append(r.Conflicts, d.path)
			continue
		case d.here == nil && d.there == nil:
			delete(f.met.Paths, d.path)
			continue
		case d.here == nil && !gone[d.path]: // a directory in which there is something of others
			delete(f.met.Paths, d.path)
			continue
		case d.here == nil:
			edits = append(edits, Edit{Entry: Entry{Path: d.path}, Remove: true})
			r.Removed = append(r.Removed, d.path)
			continue
		case d.there != nil && d.there.Kind != d.here.kind:
			edits = append(edits, Edit{Entry: Entry{Path: d.path}, Remove: true})
		}
		edits = append(edits, f.edit(d.path, d.here))
		r.Written = append(r.Written, d.path)
	}
	if len(r.Conflicts) > 0 {
		return r, &ConflictError{r.Conflicts}
	}
	if len(edits) == 0 {
		return r, f.save()
	}
	began := time.Now()
	if r.Generation, err = f.remote.Write(ctx, c.generation, message, edits); err != nil {
		return r, err
	}
	return r, errors.Join(f.pushed(ctx, r.Generation, c.list, began), f.save())
}

// gone are the paths that were removed here and of which all that is below was.
func (c comparison) gone() map[string]bool {
	removed := map[string]bool{}
	for _, d := range c.list {
		if d.ours && d.here == nil {
			removed[d.path] = true
		}
	}
	gone := maps.Clone(removed)
	for _, e := range c.entries {
		if removed[e.Path] {
			continue
		}
		for dir := path.Dir(e.Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			delete(gone, dir)
		}
	}
	return gone
}

// edit is a path as it is here.
func (f *Folder) edit(p string, l *local) Edit {
	e := Edit{Entry: Entry{
		Path: p, Kind: l.kind, Mode: l.mode, Target: l.target, Bytes: l.stat.Size,
		Time: time.Unix(0, l.stat.MTime).UTC(),
	}}
	if l.kind == File {
		e.Open = func() (io.ReadCloser, error) {
			file, err := f.open(p)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("%s: %w", p, errChanging)
			}
			if err != nil {
				return nil, err
			}
			return &steady{file, p, l.stat}, nil
		}
	}
	return e
}

// pushed remembers what the new version has of what was sent.
func (f *Folder) pushed(ctx context.Context, generation int64, list []difference, began time.Time) error {
	entries, err := f.remote.Files(ctx, generation)
	if err != nil {
		return err
	}
	there := make(map[string]*Entry, len(entries))
	for i := range entries {
		there[entries[i].Path] = &entries[i]
	}
	for _, d := range list {
		if d.ours {
			f.meet(d.path, there[d.path], d.here, began)
		}
	}
	return nil
}

// steady reads a file that must not change meanwhile: half of one version and half of another is
// what nobody wrote.
type steady struct {
	file interface {
		io.ReadCloser
		Stat() (fs.FileInfo, error)
	}
	path string
	was  stat
}

func (s *steady) Read(b []byte) (int, error) {
	n, err := s.file.Read(b)
	if errors.Is(err, io.EOF) {
		if info, failed := s.file.Stat(); failed != nil || statOf(info) != s.was {
			return n, fmt.Errorf("%s: %w", s.path, errChanging)
		}
	}
	return n, err
}

func (s *steady) Close() error { return s.file.Close() }

// Sync brings both sides to the same: first what changed there comes here, then what changed here
// goes there. Of a path that both changed, ours keeps the name and theirs is beside it, on both sides.
func (f *Folder) Sync(ctx context.Context, message string) (Report, error) {
	var all Report
	for range unsteady {
		pulled, err := f.Pull(ctx, KeepBoth)
		all.add(pulled)
		if err != nil {
			return all, err
		}
		pushed, err := f.Push(ctx, message, Refuse)
		if _, again := errors.AsType[*ConflictError](err); again {
			continue // somebody was faster: theirs comes first
		}
		all.add(pushed)
		return all, err
	}
	return all, fmt.Errorf("the workspace changed %d times meanwhile", unsteady)
}

func (r *Report) add(o Report) {
	r.Generation = max(r.Generation, o.Generation)
	r.Written, r.Removed = append(r.Written, o.Written...), append(r.Removed, o.Removed...)
	r.Conflicts, r.Skipped = append(r.Conflicts, o.Conflicts...), o.Skipped
}

// Dirty reports whether anything changed here since both sides met. It asks the workspace nothing.
func (f *Folder) Dirty() (bool, error) {
	began := time.Now()
	rules := f.rules()
	here, _, err := f.scan(rules)
	if err != nil {
		return false, err
	}
	for p, l := range here {
		if changed, err := f.changed(p, l, began); changed || err != nil {
			return changed, err
		}
	}
	for p := range f.met.Paths {
		if here[p] == nil {
			return true, nil
		}
	}
	return false, nil
}

// conflictName is where the other version of a path goes.
func conflictName(p string, generation int64) string {
	const room = 200
	if i := strings.LastIndexByte(p, '/') + 1; len(p)-i > room {
		p = strings.ToValidUTF8(p[:i+room], "")
	}
	return fmt.Sprintf("%s.conflict-g%d", p, generation)
}
