package repo

import (
	"context"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

const (
	aheadParallel = 64
	aheadFirst    = 16   // generations that are read ahead at first; the number doubles each time
	aheadMost     = 1024 // generations that are read ahead at most, because all are held in memory
)

// readAhead reads manifests of the history ahead of a reader that follows parents, many at a time. It drops errors: the
// reader then reads the manifest itself.
type readAhead struct {
	repo   *Repo
	ref    format.Ref
	brief  bool  // lines may be missing, see format.Codec.DecodeSummary
	window int64 // how many generations the last fetch read ahead

	mu    sync.Mutex
	found map[string]*format.Manifest // by name
	begun map[string]bool             // names of manifests whose read has begun
	slots chan struct{}
	reads sync.WaitGroup
}

func (r *Repo) newReadAhead(ref format.Ref, brief bool) *readAhead {
	return &readAhead{repo: r, ref: ref, brief: brief, slots: make(chan struct{}, aheadParallel)}
}

// read returns a manifest, which must be older than those it returned before. If digest is nil, the manifest is
// verified against the digits of the digest in its name.
func (a *readAhead) read(ctx context.Context, name string, digest *objects.Digest) (*format.Manifest, error) {
	if a.found == nil { // a reader that needs one manifest reads no others
		a.found = map[string]*format.Manifest{}
		return a.repo.ReadManifest(ctx, a.ref, name, digest)
	}
	m := a.found[name]
	if m == nil && digest != nil {
		a.fetch(ctx, format.ManifestRef{Name: name, Digest: *digest})
		m = a.found[name]
	}
	if m == nil {
		return a.repo.ReadManifest(ctx, a.ref, name, digest)
	}
	delete(a.found, name)
	return m, nil
}

// fetch reads the manifest to which at refers, and those before it.
func (a *readAhead) fetch(ctx context.Context, at format.ManifestRef) {
	a.window = min(max(2*a.window, aheadFirst), aheadMost)
	a.found, a.begun = map[string]*format.Manifest{}, map[string]bool{}
	a.begin(ctx, at, at.Generation()-a.window+1)
	a.reads.Wait()
}

// begin starts to read a manifest, and then those that it refers to, down to the generation oldest.
func (a *readAhead) begin(ctx context.Context, at format.ManifestRef, oldest int64) {
	a.mu.Lock()
	begun := a.begun[at.Name]
	a.begun[at.Name] = true
	a.mu.Unlock()
	if begun {
		return
	}
	a.reads.Go(func() {
		a.slots <- struct{}{}
		m, err := a.repo.peek(ctx, a.ref, at, a.brief)
		<-a.slots
		if err != nil {
			return
		}
		a.mu.Lock()
		a.found[at.Name] = m
		a.mu.Unlock()
		refs := m.Header.Before()
		for _, l := range m.Header.Chain { // further apart than parents, so that fewer reads wait for each other
			refs = append(refs, l.ManifestRef)
		}
		for _, next := range refs {
			if g := next.Generation(); g >= oldest && g < at.Generation() {
				a.begin(ctx, next, oldest)
			}
		}
	})
}
