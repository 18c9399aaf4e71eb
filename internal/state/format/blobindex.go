package format

import (
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// blobIndex says in which file of an entry set a blob may be. It is built at the first use, and the entry sets of later
// versions share it.
type blobIndex struct {
	mu    sync.Mutex
	paths *blobPaths
}

// blobPaths is the path of a file that has a blob, in one of the versions that share it.
type blobPaths struct {
	mu   sync.Mutex
	byID map[objects.Digest]string
}

func (x *blobIndex) get() *blobPaths {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.paths
}

// build builds the index if there is none.
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

// inherit shares the index of a version of which changes make the one with n entries. An index that is full of paths of
// older versions is not shared.
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

// find returns the path of a file that has a blob, or had it in another version. If it is not known, no file has it,
// provided that there is an index.
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
