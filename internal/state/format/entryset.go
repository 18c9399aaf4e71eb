package format

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// EntrySet is the entries of one version, sorted by the bytes of their paths. It is immutable.
type EntrySet struct {
	Entries []*Entry
	Files   int   // number of entries
	Bytes   int64 // of all files

	once  sync.Once
	index map[objects.Digest]*Blob // by content; built at the first use
}

// EmptySet is the version of a workspace without commits.
var EmptySet = &EntrySet{}

// NewEntrySet returns an entry set of sorted entries. It returns an error if they do not form a tree.
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

// Apply returns the entry set that sorted changes make of s.
func (s *EntrySet) Apply(changes []Change) (*EntrySet, error) {
	entries := make([]*Entry, 0, len(s.Entries)+len(changes))
	old := s.Entries
	for _, c := range changes {
		for len(old) > 0 && old[0].Path < c.Path {
			entries = append(entries, old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0].Path == c.Path {
			old = old[1:]
		}
		if c.Entry != nil {
			entries = append(entries, c.Entry)
		}
	}
	return NewEntrySet(append(entries, old...))
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
		s.once.Do(func() {
			s.index = make(map[objects.Digest]*Blob, len(s.Entries))
			for _, e := range s.Entries {
				for i := range e.Blobs {
					s.index[e.Blobs[i].ID] = &e.Blobs[i]
				}
			}
		})
		return func(id objects.Digest) (Blob, bool) {
			if b := s.index[id]; b != nil {
				return *b, true
			}
			return Blob{}, false
		}
	}
	return func(id objects.Digest) (Blob, bool) {
		for _, e := range s.Entries {
			for _, b := range e.Blobs {
				if b.ID == id {
					return b, true
				}
			}
		}
		return Blob{}, false
	}
}

// PackUse says how much of a pack a version needs.
type PackUse struct {
	Pack *Pack
	Live int64 // stored bytes that the version needs
}

// PackUses returns the packs that s needs, in ascending order of Live.
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
		}
	}
	for i := range uses { // a blob that several files share was counted for each of them
		uses[i].Live = min(uses[i].Live, uses[i].Pack.Size)
	}
	slices.SortFunc(uses, func(a, b PackUse) int {
		return cmp.Or(cmp.Compare(a.Live, b.Live), a.Pack.ID.Compare(b.Pack.ID))
	})
	return uses
}

// Change is a change of one path.
type Change struct {
	Path  string
	Entry *Entry // new entry; nil removes the path
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
