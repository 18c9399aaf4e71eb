package state

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// kind is what a path is.
type kind byte

const (
	kindFile kind = 'f'
	kindDir  kind = 'd'
	kindLink kind = 'l'
	kindOdd  kind = 'x' // socket, pipe, device: never stored
)

// pack names an immutable pack; all blobs of one pack share the pointer. While
// the pack is being filled its fields are zero.
type pack struct {
	ID   objects.Digest
	Size int64
	Key  string // id of the key that encrypts it; empty: it is in the clear
}

// overhead is how many of a blob's stored bytes are the encryption's.
func (p *pack) overhead() int64 {
	if p.Key == "" {
		return 0
	}
	return lockTag
}

// blob is where a piece of content lies in a pack. The content is stored raw if
// Stored == Raw, else as one zstd frame; where the pack is encrypted, that is, with lockTag more bytes.
type blob struct {
	ID     objects.Digest // of the content
	Pack   *pack
	Offset int64
	Stored int64
	Raw    int64
}

// entry is one path of a version. Entries are shared between versions and never changed.
type entry struct {
	Path  string
	Kind  kind
	Mode  uint32 // permission bits only
	Size  int64
	MTime int64 // nanoseconds since 1970; not part of what makes a version different
	Link  string
	Blobs []blob
}

// sameContent reports whether a and b hold the same bytes, directory or target.
func (a *entry) sameContent(b *entry) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.Kind != b.Kind || a.Size != b.Size || a.Link != b.Link {
		return false
	}
	return slices.EqualFunc(a.Blobs, b.Blobs, func(x, y blob) bool { return x.ID == y.ID })
}

// same adds the permissions.
func (a *entry) same(b *entry) bool {
	return a == b || a.sameContent(b) && (a.Kind == kindLink || a.Mode == b.Mode)
}

func (a *entry) isDir() bool { return a != nil && a.Kind == kindDir }

// snapshot is all paths of one version, sorted by their bytes. It is immutable.
type snapshot struct {
	entries []*entry
	files   int // all entries
	bytes   int64

	once  sync.Once
	index map[objects.Digest]*blob // by content; made when asked for
}

// blobFinder returns a function that finds content in s, for about n calls.
func (s *snapshot) blobFinder(n int) func(objects.Digest) (blob, bool) {
	const few = 16
	if n > few {
		s.once.Do(func() {
			s.index = make(map[objects.Digest]*blob, len(s.entries))
			for _, e := range s.entries {
				for i := range e.Blobs {
					s.index[e.Blobs[i].ID] = &e.Blobs[i]
				}
			}
		})
		return func(id objects.Digest) (blob, bool) {
			if b := s.index[id]; b != nil {
				return *b, true
			}
			return blob{}, false
		}
	}
	return func(id objects.Digest) (blob, bool) {
		for _, e := range s.entries {
			for i := range e.Blobs {
				if e.Blobs[i].ID == id {
					return e.Blobs[i], true
				}
			}
		}
		return blob{}, false
	}
}

var emptySnapshot = &snapshot{}

// newSnapshot takes sorted entries and checks that they form a tree.
func newSnapshot(entries []*entry) (*snapshot, error) {
	s := &snapshot{entries: entries, files: len(entries)}
	dirs := map[string]bool{"": true}
	last := ""
	for _, e := range entries {
		if e.Path <= last {
			return nil, fmt.Errorf("path %q comes after %q", e.Path, last)
		}
		last = e.Path
		if !dirs[parent(e.Path)] {
			return nil, fmt.Errorf("path %q is not in a directory", e.Path)
		}
		if e.Kind == kindDir {
			dirs[e.Path] = true
		}
		s.bytes += e.Size
	}
	return s, nil
}

func (s *snapshot) find(path string) *entry {
	i, ok := sort.Find(len(s.entries), func(i int) int { return cmp.Compare(path, s.entries[i].Path) })
	if !ok {
		return nil
	}
	return s.entries[i]
}

// hasBelow reports whether any path lies in the directory dir.
func (s *snapshot) hasBelow(dir string, except map[string]bool) bool {
	prefix := dir + "/"
	i := sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Path >= prefix })
	for ; i < len(s.entries) && len(s.entries[i].Path) > len(prefix) && s.entries[i].Path[:len(prefix)] == prefix; i++ {
		if !except[s.entries[i].Path] {
			return true
		}
	}
	return false
}

// change is a path's new entry; nil when the path was removed.
type change struct {
	path  string
	entry *entry
}

func sortChanges(changes []change) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.path, b.path) })
}

func changedPaths(changes []change) []string {
	paths := make([]string, len(changes))
	for i, c := range changes {
		paths[i] = c.path
	}
	return paths
}

// apply returns s with sorted changes made.
func (s *snapshot) apply(changes []change) (*snapshot, error) {
	entries := make([]*entry, 0, len(s.entries)+len(changes))
	old := s.entries
	for _, c := range changes {
		for len(old) > 0 && old[0].Path < c.path {
			entries = append(entries, old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0].Path == c.path {
			old = old[1:]
		}
		if c.entry != nil {
			entries = append(entries, c.entry)
		}
	}
	return newSnapshot(append(entries, old...))
}

// diff returns what turns s into other.
func (s *snapshot) diff(other *snapshot) []change {
	var changes []change
	a, b := s.entries, other.entries
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Path < b[0].Path:
			changes = append(changes, change{path: a[0].Path})
			a = a[1:]
		case len(a) == 0 || b[0].Path < a[0].Path:
			changes = append(changes, change{b[0].Path, b[0]})
			b = b[1:]
		default:
			if !a[0].same(b[0]) {
				changes = append(changes, change{b[0].Path, b[0]})
			}
			a, b = a[1:], b[1:]
		}
	}
	return changes
}
