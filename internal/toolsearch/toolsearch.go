// Package toolsearch finds the tools of a catalogue that fit a description. Index.Pick does so for tasks whose
// programs are to be written, Index.Select for callers that search tools. Package selection ranks the tools. This
// package adds what a process keeps between searches: the indexes of catalogues, the embeddings of their tools, and
// the tools that each tenant's tasks used before. The key type is Search.
package toolsearch

import (
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/tools"
)

// Search keeps the indexes of recently used catalogues, because they are costly to build. It is safe for concurrent
// use.
type Search struct {
	embeddings *Embeddings

	mu      sync.Mutex
	indexes []*Index // least recently used first
}

// maxIndexes bounds the indexes that are kept, one for each Listing. Tenants that see the same tools share a Listing.
const maxIndexes = 32

// New returns a search by words and embeddings. Nil embeddings mean a search by words alone.
func New(e *Embeddings) *Search { return &Search{embeddings: e} }

// Index returns the index of a catalogue. The index is built when it is first searched.
func (s *Search) Index(listing *tools.Listing) *Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.indexes, func(x *Index) bool { return x.Listing == listing }); i >= 0 {
		found := s.indexes[i]
		s.indexes = append(slices.Delete(s.indexes, i, i+1), found)
		return found
	}
	if len(s.indexes) == maxIndexes {
		s.indexes = slices.Delete(s.indexes, 0, 1)
	}
	x := newIndex(listing, s.embeddings)
	s.indexes = append(s.indexes, x)
	return x
}
