package format

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// EntrySet is the entries of one version, sorted by the bytes of their paths. It is immutable.
type EntrySet struct {
	Entries []*Entry
	Files   int   // number of entries
	Bytes   int64 // of all files

	once  sync.Once
	index map[objects.Digest]*Blob // by content; built on first use
}

// EmptySet is the version of a workspace without commits.
var EmptySet = &EntrySet{}

// NewEntrySet returns an entry set of sorted entries, or an error if they do not form a tree.
func NewEntrySet(entries []*Entry) (*EntrySet, error) {
	s := &EntrySet{Entries: entries, Files: len(entries)}
	dirs := map[string]bool{"": true}
	last := ""
	for _, e := range entries {
		if e.Path <= last {
			return nil, fmt.Errorf("path %q comes after %q", e.Path, last)
		}
		last = e.Path
		if !dirs[ParentDir(e.Path)] {
			return nil, fmt.Errorf("path %q is not in a directory", e.Path)
		}
		if e.Kind == KindDir {
			dirs[e.Path] = true
		}
		s.Bytes += e.Size
	}
	return s, nil
}

// Find returns the entry of a path, or nil.
func (s *EntrySet) Find(path string) *Entry {
	i, ok := sort.Find(len(s.Entries), func(i int) int { return cmp.Compare(path, s.Entries[i].Path) })
	if !ok {
		return nil
	}
	return s.Entries[i]
}

// search returns the index of the first entry whose path is not less than path.
func (s *EntrySet) search(path string) int {
	return sort.Search(len(s.Entries), func(i int) bool { return s.Entries[i].Path >= path })
}

// Below returns the entry of path, if there is one, and the entries below it.
func (s *EntrySet) Below(path string) []*Entry {
	var out []*Entry
	if e := s.Find(path); e != nil {
		out = append(out, e)
	}
	prefix := path + "/"
	for i := s.search(prefix); i < len(s.Entries) && strings.HasPrefix(s.Entries[i].Path, prefix); i++ {
		out = append(out, s.Entries[i])
	}
	return out
}

// HasBelow reports whether s has paths below dir, other than those in except.
func (s *EntrySet) HasBelow(dir string, except map[string]bool) bool {
	prefix := dir + "/"
	for i := s.search(prefix); i < len(s.Entries) && strings.HasPrefix(s.Entries[i].Path, prefix); i++ {
		if !except[s.Entries[i].Path] {
			return true
		}
	}
	return false
}

// Apply returns an entry set of s with sorted changes made.
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

// BlobFinder returns a function that finds content in s by its digest. n is about how often it will be called: for few
// calls no index is built.
func (s *EntrySet) BlobFinder(n int) func(objects.Digest) (Blob, bool) {
	const few = 16
	if n > few {
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
			for i := range e.Blobs {
				if e.Blobs[i].ID == id {
					return e.Blobs[i], true
				}
			}
		}
		return Blob{}, false
	}
}

// PackUse is how much of a pack a version needs.
type PackUse struct {
	Pack *Pack
	Live int64 // stored bytes that the version needs
}

// PackUses returns the packs that s needs, by the bytes that it needs of them, ascending.
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
	for i := range uses { // blobs that several files share were counted for each
		uses[i].Live = min(uses[i].Live, uses[i].Pack.Size)
	}
	slices.SortFunc(uses, func(a, b PackUse) int {
		return cmp.Or(cmp.Compare(a.Live, b.Live), a.Pack.ID.Compare(b.Pack.ID))
	})
	return uses
}

// Change is the new entry of a path; nil removes the path.
type Change struct {
	Path  string
	Entry *Entry
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

// AllEntries returns the changes that turn the empty version into set.
func AllEntries(set *EntrySet) []Change {
	changes := make([]Change, len(set.Entries))
	for i, e := range set.Entries {
		changes[i] = Change{e.Path, e}
	}
	return changes
}

// Squash combines the changes of consecutive manifests.
func Squash(deltas []*Manifest) []Change {
	if len(deltas) == 1 {
		return deltas[0].Changes
	}
	latest := map[string]Change{}
	for _, m := range deltas {
		for _, c := range m.Changes {
			latest[c.Path] = c
		}
	}
	changes := slices.Collect(maps.Values(latest))
	SortChanges(changes)
	return changes
}
