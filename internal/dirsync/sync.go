package dirsync

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// errChanging is returned when a file changes after it was scanned and before it was read.
var errChanging = errors.New("the file changed while it was read")

// maxAttempts bounds the attempts at a synchronisation while either side keeps changing.
const maxAttempts = 4

// difference is a path at which one side or both differ from the base.
type difference struct {
	path         string
	here         *local    // in the directory; nil if it does not exist
	there        *FileInfo // in the workspace; nil if it does not exist
	ours, theirs bool      // which side changed it
}

// replacesDir reports whether a file or link in the directory has replaced a directory of the workspace.
func (d difference) replacesDir() bool {
	return d.ours && d.here != nil && d.here.kind != Dir && d.there != nil && d.there.Kind == Dir
}

// comparison is the outcome of comparing both sides with the base.
type comparison struct {
	Version
	files   []FileInfo // of that version
	list    []difference
	skipped []string
}

// compare compares both sides with the base. If both sides made the same change, it records the change in the base.
func (f *Folder) compare(ctx context.Context) (c comparison, err error) {
	if c.Version, err = f.remote.Newest(ctx); err != nil {
		return c, err
	}
	if err := f.checkBase(ctx, c.Version); err != nil {
		return c, err
	}
	if c.files, err = f.remote.Files(ctx, c.Generation); err != nil {
		return c, err
	}
	rules, err := f.rules()
	if err != nil {
		return c, err
	}
	began := time.Now()
	var here map[string]*local
	if here, c.skipped, err = f.scan(rules); err != nil {
		return c, err
	}
	there := map[string]*FileInfo{}
	paths := map[string]bool{}
	for i := range c.files {
		e := &c.files[i]
		switch {
		case rules.MatchBelow(e.Path) || e.Kind == Dir && rules.Match(e.Path, true):
		case !syncable(e.Path) || pointsOutside(e.Path, e.Kind, e.Target):
			c.skipped = append(c.skipped, e.Path)
		default:
			there[e.Path], paths[e.Path] = e, true
		}
	}
	if err := rules.Err(); err != nil {
		return c, err
	}
	clashing, err := f.clashing(there)
	if err != nil {
		return c, err
	}
	c.skipped = append(c.skipped, clashing...)
	for p := range here {
		paths[p] = true
	}
	for p := range f.base.Paths {
		paths[p] = true
	}
	skipped := setOf(c.skipped)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		d := difference{path: p, here: here[p], there: there[p]}
		if isIn(skipped, p) {
			continue
		}
		k := f.base.Paths[p]
		if k == nil && d.here != nil && d.there != nil && d.here.kind == d.there.Kind &&
			f.isModeHere(d.here.mode, d.there) {
			d.here.mode, d.here.localMode = d.there.Mode, d.here.mode
		}
		if d.ours, err = f.changed(p, d.here, began); err != nil {
			return c, err
		}
		d.theirs = k == nil && d.there != nil || k != nil && !k.same(d.there)
		if !d.ours && !d.theirs {
			continue
		}
		same, err := f.holds(p, d.here, d.there)
		if err != nil {
			return c, err
		}
		if same { // both sides made the same change
			f.record(d, d.there, d.here.statAt(began))
			continue
		}
		c.list = append(c.list, d)
	}
	c.markReplacedDirs()
	c.markBelowFiles()
	return c, nil
}

// markReplacedDirs makes conflicts of the directories that we have replaced with a file or link if the workspace has
// paths below them that we have never seen, or have seen with other content: these would be removed.
func (c comparison) markReplacedDirs() {
	removed := c.removed()
	for _, d := range c.list {
		if !d.theirs || d.there == nil {
			continue
		}
		for dir := path.Dir(d.path); dir != "."; dir = path.Dir(dir) {
			delete(removed, dir)
		}
	}
	for i, d := range c.list {
		if d.replacesDir() && !removed[d.path] {
			c.list[i].theirs = true
		}
	}
}

// markBelowFiles makes conflicts of the directories that the workspace has replaced with a file or link although we
// have changed paths below them, and of those paths.
func (c comparison) markBelowFiles() {
	dirs := map[string]int{} // indexes of such directories in the list
	for i, d := range c.list {
		if d.theirs && d.there != nil && d.there.Kind != Dir && d.here != nil && d.here.kind == Dir {
			dirs[d.path] = i
		}
	}
	for i, d := range c.list {
		if !d.ours || d.here == nil {
			continue
		}
		for dir := path.Dir(d.path); dir != "."; dir = path.Dir(dir) {
			if j, ok := dirs[dir]; ok {
				c.list[i].theirs, c.list[j].ours = true, true
			}
		}
	}
}

// maxLog is how many versions checkBase looks through, the limit of the HTTP interface.
const maxLog = 1000

// checkBase returns an error if newest is below the base's generation, or if the version of that generation is not the
// base's. Generations are never used again, so the workspace is not the one that the base describes, and no commit
// removed what it lacks. A version that is no longer kept cannot be compared.
func (f *Folder) checkBase(ctx context.Context, newest Version) error {
	b := f.base
	if len(b.Paths) == 0 {
		return nil
	}
	if newest.Generation < b.Generation {
		return fmt.Errorf("%w: generation %d, although %s records generation %d; bring the workspace's data back, or "+
			"remove this file to begin anew: then nothing is removed from the directory",
			ErrOlder, newest.Generation, f.o.BaseFile, b.Generation)
	}
	versions := []Version{newest}
	if behind := newest.Generation - b.Generation; behind > 0 && b.Commit != "" {
		var err error
		if versions, err = f.remote.Log(ctx, int(min(behind+1, maxLog))); err != nil {
			return err
		}
	}
	for _, v := range versions {
		if v.Generation == b.Generation && v.Commit != b.Commit && v.Commit != "" && b.Commit != "" {
			return fmt.Errorf("%w, such as one of the same name in another fleet: its generation %d is another one "+
				"than %s records", ErrOtherWorkspace, v.Generation, f.o.BaseFile)
		}
	}
	return nil
}

// setBase records the version that the directory is synchronised with.
func (f *Folder) setBase(v Version) { f.base.Generation, f.base.Commit = v.Generation, v.Commit }

// record sets the base of a path to e. s is the stat of a file in the directory that has e's content.
func (f *Folder) record(d difference, e *FileInfo, s stat) {
	if e == nil {
		delete(f.base.Paths, d.path)
		return
	}
	k := &basePath{FileInfo: *e, Stat: s}
	if l := d.here; l != nil && l.kind == e.Kind {
		if mode := cmp.Or(l.localMode, l.mode); f.isModeHere(mode, e) {
			k.LocalMode = mode
		}
	}
	f.base.Paths[d.path] = k
}

// Pull applies the changes of the workspace to the directory. Paths that only the directory changed stay as they are.
// If Pull fails, the report lists what it had done before; each listed path is complete, and another Pull continues.
func (f *Folder) Pull(ctx context.Context, policy Policy) (Report, error) {
	c, err := f.compare(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Generation: c.Generation, Skipped: c.skipped}
	var todo []difference
	kept := map[string]bool{} // files of ours, at which the workspace has directories
	for _, d := range c.list {
		switch {
		case !d.theirs:
			r.Different = append(r.Different, d.path)
			continue
		case isIn(kept, d.path):
			r.Different = append(r.Different, d.path)
			f.record(d, d.there, stat{})
			continue
		case d.ours && d.here != nil && d.here.kind == Dir && d.there != nil && d.there.Kind == Dir, // modes differ
			d.ours && policy == Ours: // our version now counts as a change to theirs
			r.Different = append(r.Different, d.path)
			f.record(d, d.there, stat{})
			kept[d.path] = d.replacesDir()
			continue
		case d.ours && policy != Theirs:
			r.Conflicts = append(r.Conflicts, d.path)
			d.ours = d.here != nil // their edit wins over our removal
		}
		todo = append(todo, d)
	}
	if len(r.Conflicts) > 0 && policy == Refuse {
		return r, &ConflictError{r.Conflicts}
	}
	f.setBase(c.Version)
	err = f.apply(ctx, c.Generation, todo, policy, &r)
	slices.Sort(r.Conflicts)
	slices.Sort(r.Different)
	r.Conflicts, r.Different = slices.Compact(r.Conflicts), slices.Compact(r.Different)
	return r, errors.Join(err, f.save())
}

// Push commits the changes of the directory. Paths that only the workspace changed stay as they are. policy is Refuse
// or Ours.
func (f *Folder) Push(ctx context.Context, message string, policy Policy) (Report, error) {
	var r Report
	var err error
	for range maxAttempts {
		if r, err = f.push(ctx, message, policy); !errors.Is(err, errChanging) {
			break
		}
	}
	return r, err
}

func (f *Folder) push(ctx context.Context, message string, policy Policy) (Report, error) {
	f.behind = false
	c, err := f.compare(ctx)
	if err != nil {
		return Report{}, err
	}
	outside := map[string]bool{}
	for _, d := range c.list {
		if d.ours && d.here.pointsOutside(d.path) {
			c.skipped, outside[d.path] = append(c.skipped, d.path), true
		}
	}
	c.list = slices.DeleteFunc(c.list, func(d difference) bool { return isIn(outside, d.path) })
	r := Report{Generation: c.Generation, Skipped: c.skipped}
	removed := c.removed()
	var edits []Edit
	for _, d := range c.list {
		switch {
		case !d.ours:
			r.Different = append(r.Different, d.path)
			continue
		case d.theirs && policy != Ours:
			r.Conflicts = append(r.Conflicts, d.path)
			continue
		case d.here == nil && (d.there == nil || !removed[d.path]): // it contains paths that we did not remove
			if d.there != nil {
				r.Different = append(r.Different, d.path)
			}
			delete(f.base.Paths, d.path)
			continue
		case d.here == nil:
			edits = append(edits, Edit{FileInfo: FileInfo{Path: d.path}, Remove: true})
			r.Removed = append(r.Removed, d.path)
			continue
		case d.there != nil && d.there.Kind != d.here.kind:
			edits = append(edits, Edit{FileInfo: FileInfo{Path: d.path}, Remove: true})
		}
		edits = append(edits, f.edit(d.path, d.here))
		r.Written = append(r.Written, d.path)
	}
	if len(r.Conflicts) > 0 {
		return r, &ConflictError{r.Conflicts}
	}
	f.setBase(c.Version)
	if len(edits) == 0 && c.Generation == 0 && len(f.base.Paths) == 0 {
		return r, nil // a workspace without commits may not be the one that the caller means: do not record its name
	}
	if len(edits) == 0 {
		return r, f.save()
	}
	f.meter, f.pushed = meter{report: f.o.Progress}, map[string]hash.Hash{}
	for _, e := range edits {
		if e.Kind == File {
			f.meter.total += e.Bytes
		}
	}
	began := time.Now()
	made, err := f.remote.Write(ctx, c.Generation, message, edits)
	r.Generation = made.Generation
	if err != nil {
		return r, err
	}
	f.setBase(made)
	others, err := f.recordPush(ctx, r.Generation, c, began)
	r.Different = append(r.Different, others...)
	return r, errors.Join(err, f.save())
}

// removed returns the paths that were removed from the directory, or replaced by a file, together with everything below
// them.
func (c comparison) removed() map[string]bool {
	ours := map[string]bool{}
	for _, d := range c.list {
		if d.ours && d.here == nil || d.replacesDir() {
			ours[d.path] = true
		}
	}
	whole := maps.Clone(ours)
	for _, e := range c.files {
		if ours[e.Path] {
			continue
		}
		for dir := path.Dir(e.Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			delete(whole, dir)
		}
	}
	return whole
}

// edit returns the edit that writes a path as it is in the directory.
func (f *Folder) edit(p string, l *local) Edit {
	e := Edit{FileInfo: FileInfo{
		Path: p, Kind: l.kind, Mode: l.mode, Target: l.target, Bytes: l.stat.Size,
		Time: time.Unix(0, l.stat.MTime).UTC(),
	}}
	if l.kind == File {
		e.Open = func() (io.ReadCloser, error) {
			file, err := f.open(p)
			if err != nil {
				return nil, err
			}
			f.pushed[p] = sha256.New()
			return &stableReader{file, p, l.stat, io.MultiWriter(&f.meter, f.pushed[p])}, nil
		}
	}
	return e
}

// recordPush records the pushed paths in the base, as they are in the new version. It returns the paths at which that
// version is another one than was pushed: those that a commit has changed since the comparison, and files that the
// workspace has merged. A merged file is recorded as it was pushed, so that the next Pull brings the merged one. Such
// files are small and have no parts.
func (f *Folder) recordPush(
	ctx context.Context, generation int64, c comparison, began time.Time,
) (others []string, err error) {
	files, err := f.remote.Files(ctx, generation)
	if err != nil {
		return nil, err
	}
	there := make(map[string]*FileInfo, len(files))
	for i := range files {
		there[files[i].Path] = &files[i]
	}
	if generation > c.Generation+1 {
		others = c.changedIn(there)
		f.behind = len(others) > 0
	}
	for _, d := range c.list {
		if !d.ours {
			continue
		}
		e, sum := there[d.path], f.pushed[d.path]
		if e != nil && e.Kind == File && len(e.Parts) == 0 && sum != nil {
			if etag := hex.EncodeToString(sum.Sum(nil)); etag != e.ETag {
				f.behind, others = true, append(others, d.path)
				e = &FileInfo{Path: e.Path, Kind: File, Mode: e.Mode, Bytes: d.here.stat.Size, Time: e.Time, ETag: etag}
			}
		}
		f.record(d, e, d.here.statAt(began))
	}
	return others, nil
}

// changedIn returns the paths at which a later version differs from the compared one, apart from those that already
// differed from the directory.
func (c comparison) changedIn(later map[string]*FileInfo) []string {
	known := setOf(c.skipped)
	for _, d := range c.list {
		known[d.path] = true
	}
	var paths []string
	before := make(map[string]bool, len(c.files))
	for _, e := range c.files {
		before[e.Path] = true
		if !known[e.Path] && !e.same(later[e.Path]) {
			paths = append(paths, e.Path)
		}
	}
	for p := range later {
		if !before[p] && !known[p] {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// stableReader reads a file. It returns errChanging if the file has changed since it was scanned.
type stableReader struct {
	file    *os.File
	path    string
	scanned stat
	copy    io.Writer // of what is read; never fails
}

// Read implements io.Reader.
func (s *stableReader) Read(b []byte) (int, error) {
	n, err := s.file.Read(b)
	_, _ = s.copy.Write(b[:n])
	if errors.Is(err, io.EOF) {
		if info, statErr := s.file.Stat(); statErr != nil || statOf(info) != s.scanned {
			return n, fmt.Errorf("%s: %w", s.path, errChanging)
		}
	}
	return n, err
}

// Close implements io.Closer.
func (s *stableReader) Close() error { return s.file.Close() }

// Sync makes both sides equal: it pulls, and then pushes. If both sides changed a path, both versions are kept on both
// sides, as with KeepBoth.
func (f *Folder) Sync(ctx context.Context, message string) (Report, error) {
	var all Report
	for range maxAttempts {
		pulled, err := f.Pull(ctx, KeepBoth)
		all.add(pulled)
		if err != nil {
			return all, err
		}
		pushed, err := f.Push(ctx, message, Refuse)
		if _, conflict := errors.AsType[*ConflictError](err); conflict {
			continue // another commit came first: pull it
		}
		all.add(pushed)
		if err == nil && f.behind {
			continue // pull merged files, and what other commits have changed
		}
		return all, err
	}
	return all, fmt.Errorf("synchronise: the workspace changed during each of %d attempts", maxAttempts)
}

func (r *Report) add(o Report) {
	r.Generation = max(r.Generation, o.Generation)
	r.Written, r.Removed = append(r.Written, o.Written...), append(r.Removed, o.Removed...)
	r.Conflicts, r.Skipped, r.Different = append(r.Conflicts, o.Conflicts...), o.Skipped, o.Different
}

// Dirty reports whether the directory changed since the last synchronisation. It sends no request.
func (f *Folder) Dirty() (bool, error) {
	began := time.Now()
	rules, err := f.rules()
	if err != nil {
		return false, err
	}
	here, list, err := f.scan(rules)
	if err != nil {
		return false, err
	}
	skipped := setOf(list)
	for p, l := range here {
		if l.pointsOutside(p) {
			skipped[p] = true // not pushed
			continue
		}
		if changed, err := f.changed(p, l, began); changed || err != nil {
			return changed, err
		}
	}
	for p := range f.base.Paths {
		if here[p] == nil && !isIn(skipped, p) {
			return true, nil
		}
	}
	return false, nil
}

func setOf(paths []string) map[string]bool {
	set := make(map[string]bool, len(paths))
	for _, p := range paths {
		set[p] = true
	}
	return set
}

// isIn reports whether set has a path or a directory that the path is in.
func isIn(set map[string]bool, p string) bool {
	for ; p != "." && p != "/"; p = path.Dir(p) {
		if set[p] {
			return true
		}
	}
	return false
}

// conflictName returns the name for their version of a conflicting path.
func conflictName(p string, generation int64) string {
	const room = 200
	if i := strings.LastIndexByte(p, '/') + 1; len(p)-i > room {
		p = strings.ToValidUTF8(p[:i+room], "")
	}
	return fmt.Sprintf("%s.conflict-g%d", p, generation)
}
