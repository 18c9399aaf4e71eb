package format

import (
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// blobIndex finds the file of an entry set that may contain a blob. It is built on first use, and the entry sets of
// later versions share it.
type blobIndex struct {
	mu    sync.Mutex
	paths *blobPaths
}

// blobPaths maps each blob to the path of a file that contains it in one of the versions that share the map.
type blobPaths struct {
	mu   sync.Mutex
	byID map[objects.Digest]string
}

// get returns the index, or nil if it is not built.
func (x *blobIndex) get() *blobPaths {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.paths
}

// build builds the index if that was not done yet.
func (x *blobIndex) build(entries []*Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.paths != nil {
		return
	}
	x.paths = &blobPaths{byID: make(map[objects.Digest]string, len(entries))}
	for _, e := range entries {
		x.paths.add(e)
	}
}

// inherit shares the index of the previous version. changes lead from that version to the new one, which has n entries.
// An index that consists mostly of blobs of older versions is not shared.
func (x *blobIndex) inherit(old *blobIndex, changes []Change, n int) {
	const spare = 1000
	p := old.get()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byID) > 2*n+spare {
		return
	}
	for _, c := range changes {
		if c.Entry != nil {
			p.add(c.Entry)
		}
	}
	x.paths = p
}

func (p *blobPaths) add(e *Entry) {
	for _, b := range e.Blobs {
		p.byID[b.ID] = e.Path
	}
}

// find returns the path of a file that contains a blob, or contained it in another version. If indexed is true and
// known is false, no file contains it. indexed is false if the index was not built.
func (x *blobIndex) find(id objects.Digest) (path string, known, indexed bool) {
	p := x.get()
	if p == nil {
		return "", false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	path, known = p.byID[id]
	return path, known, true
}
