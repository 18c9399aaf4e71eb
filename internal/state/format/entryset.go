package format

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/codefleet/codefleet/internal/objects"
)

// EntrySet is the entries of one version, sorted by the bytes of their paths. It is immutable.
type EntrySet struct {
	Entries []*Entry
	Files   int   // number of entries
	Bytes   int64 // bytes of all files

	blobs blobIndex
}

// EmptySet is the entry set of a workspace without commits.
var EmptySet = &EntrySet{}

// NewEntrySet returns the entry set of entries. It returns an error if they are not sorted or do not form a tree.
func NewEntrySet(entries []*Entry) (*EntrySet, error) {
	s := &EntrySet{Entries: entries, Files: len(entries)}
	dirs := map[string]bool{"": true}
	last := ""
	for _, e := range entries {
		if e.Path <= last {
			return nil, fmt.Errorf("paths are not sorted: %q follows %q", e.Path, last)
		}
		last = e.Path
		if !dirs[ParentDir(e.Path)] {
			return nil, fmt.Errorf("path %q has no directory", e.Path)
		}
		if e.Kind == KindDir {
			dirs[e.Path] = true
		}
		s.Bytes += e.Size
	}
	return s, nil
}

// Find returns the entry at a path, or nil.
func (s *EntrySet) Find(path string) *Entry {
	i, ok := sort.Find(len(s.Entries), func(i int) int { return cmp.Compare(path, s.Entries[i].Path) })
	if !ok {
		return nil
	}
	return s.Entries[i]
}

// below returns the entries below dir.
func (s *EntrySet) below(dir string) []*Entry {
	search := func(path string) int {
		return sort.Search(len(s.Entries), func(i int) bool { return s.Entries[i].Path >= path })
	}
	return s.Entries[search(dir+"/"):search(dir+"0")] // '0' is the byte after '/'
}

// Below returns the entry at path, if it exists, and the entries below it.
func (s *EntrySet) Below(path string) []*Entry {
	if e := s.Find(path); e != nil {
		return append([]*Entry{e}, s.below(path)...)
	}
	return s.below(path)
}

// HasBelow reports whether s has paths below dir that are not in except.
func (s *EntrySet) HasBelow(dir string, except map[string]bool) bool {
	return slices.ContainsFunc(s.below(dir), func(e *Entry) bool { return !except[e.Path] })
}

// Apply returns a copy of s with changes applied. It returns an error if changes are not sorted or the result is not a
// tree.
func (s *EntrySet) Apply(changes []Change) (*EntrySet, error) {
	const checkAll = 8 // all entries are checked if at least one in checkAll has changed
	out := &EntrySet{Entries: make([]*Entry, 0, len(s.Entries)+len(changes)), Bytes: s.Bytes}
	old := s.Entries
	last := ""
	for _, c := range changes {
		if c.Path <= last {
			return nil, fmt.Errorf("paths are not sorted: %q follows %q", c.Path, last)
		}
		last = c.Path
		i, found := sort.Find(len(old), func(i int) int { return cmp.Compare(c.Path, old[i].Path) })
		out.Entries = append(out.Entries, old[:i]...)
		if old = old[i:]; found {
			out.Bytes -= old[0].Size
			old = old[1:]
		}
		if c.Entry != nil {
			out.Entries = append(out.Entries, c.Entry)
			out.Bytes += c.Entry.Size
		}
	}
	out.Entries = append(out.Entries, old...)
	out.Files = len(out.Entries)
	if len(changes) >= len(out.Entries)/checkAll {
		return NewEntrySet(out.Entries)
	}
	for _, c := range changes {
		if err := out.checkPath(c); err != nil {
			return nil, err
		}
	}
	out.blobs.inherit(&s.blobs, changes, len(out.Entries))
	return out, nil
}

// checkPath returns an error if a path that was changed, or a path below it, has no directory.
func (s *EntrySet) checkPath(c Change) error {
	if dir := ParentDir(c.Path); c.Entry != nil && dir != "" && !s.Find(dir).IsDir() {
		return fmt.Errorf("path %q has no directory", c.Path)
	}
	if c.Entry.IsDir() {
		return nil
	}
	if below := s.below(c.Path); len(below) > 0 {
		return fmt.Errorf("path %q has no directory", below[0].Path)
	}
	return nil
}

// Diff returns the changes that turn s into other.
func (s *EntrySet) Diff(other *EntrySet) []Change {
	var changes []Change
	a, b := s.Entries, other.Entries
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Path < b[0].Path:
			changes = append(changes, Change{Path: a[0].Path})
			a = a[1:]
		case len(a) == 0 || b[0].Path < a[0].Path:
			changes = append(changes, Change{b[0].Path, b[0]})
			b = b[1:]
		default:
			if !a[0].Same(b[0]) {
				changes = append(changes, Change{b[0].Path, b[0]})
			}
			a, b = a[1:], b[1:]
		}
	}
	return changes
}

// BlobFinder returns a function that finds content in s by its digest. n estimates the number of lookups: for a few
// lookups no index is built.
func (s *EntrySet) BlobFinder(n int) func(objects.Digest) (Blob, bool) {
	const minIndexed = 17
	if n >= minIndexed {
		s.blobs.build(s.Entries)
	}
	return func(id objects.Digest) (Blob, bool) {
		path, known, indexed := s.blobs.find(id)
		if indexed && !known {
			return Blob{}, false
		}
		if b := s.Find(path).findBlob(id); b != nil {
			return *b, true
		}
		for _, e := range s.Entries {
			if b := e.findBlob(id); b != nil {
				return *b, true
			}
		}
		return Blob{}, false
	}
}

// PackUse says how much of a pack a version needs.
type PackUse struct {
	Pack  *Pack
	Live  int64 // stored bytes that the version needs
	Blobs int   // number of blobs that the version needs
}

// Cost estimates how many bytes a move of the content to another pack writes, including each blob's share of the pack's
// index and of the manifest.
func (u PackUse) Cost() int64 {
	const perBlob = 128
	return u.Live + int64(u.Blobs)*perBlob
}

// PackUses returns the packs that s needs, in ascending order of Cost.
func (s *EntrySet) PackUses() []PackUse {
	index := map[objects.Digest]int{}
	var uses []PackUse
	var last *Pack
	at := 0
	for _, e := range s.Entries {
		for i := range e.Blobs {
			b := &e.Blobs[i]
			if b.Pack != last {
				var ok bool
				if at, ok = index[b.Pack.ID]; !ok {
					at = len(uses)
					index[b.Pack.ID] = at
					uses = append(uses, PackUse{Pack: b.Pack})
				}
				last = b.Pack
			}
			uses[at].Live += b.Stored
			uses[at].Blobs++
		}
	}
	for i := range uses { // a blob that several files share was counted for each of them
		uses[i].Live = min(uses[i].Live, uses[i].Pack.Size)
	}
	slices.SortFunc(uses, func(a, b PackUse) int {
		return cmp.Or(cmp.Compare(a.Cost(), b.Cost()), a.Pack.ID.Compare(b.Pack.ID))
	})
	return uses
}

// Change is a change of one path.
type Change struct {
	Path  string
	Entry *Entry // new entry; nil removes the path
}

// check returns an error if decodeManifest would refuse the change.
func (c *Change) check() error {
	if err := CheckPath(c.Path); err != nil || c.Entry == nil {
		return err
	}
	return c.Entry.Check()
}

// SortChanges sorts changes by path.
func SortChanges(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
}

// ChangedPaths returns the paths of changes.
func ChangedPaths(changes []Change) []string {
	paths := make([]string, len(changes))
	for i, c := range changes {
		paths[i] = c.Path
	}
	return paths
}
