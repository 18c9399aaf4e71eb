package state

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// Compaction bounds how scattered the newest version of a workspace becomes; zero fields take the
// defaults. Content is copied into new packs, and the version says where it is now. Older versions
// go on using the old packs, which leave as everything does: unreferenced, by Collect.
type Compaction struct {
	Small  int   // a commit moves content together when it builds on more packs of which little is needed: 16
	Little int64 // that is less than so many bytes: 512 KiB
	Packs  int   // and when it builds on more packs than this, less than half a full pack is little: 64
	Waste  int64 // a collection empties packs of which less than half is needed when that frees so many bytes: 1 MiB
}

func (c Compaction) orDefaults() Compaction {
	return Compaction{
		Small: cmp.Or(c.Small, 16), Little: cmp.Or(c.Little, 512<<10), Packs: cmp.Or(c.Packs, 64), Waste: cmp.Or(c.Waste, 1<<20),
	}
}

// foldMost is how many bytes one commit moves at most. Every byte that small commits write is moved
// a few times at most, so that the cost of a commit stays in proportion to what it writes.
const foldMost = packTarget

// fold is content that a commit moves out of packs. A nil fold moves nothing.
type fold struct {
	from map[objects.Digest]bool // packs
	to   map[objects.Digest]blob // where their content is now, by its id
	wait func() error
}

// stored waits until the moved content is in the store. Only then may a HEAD name it.
func (f *fold) stored() error {
	if f == nil {
		return nil
	}
	return f.wait()
}

// packUse is what a version needs of a pack.
type packUse struct {
	pack *pack
	live int64 // stored bytes
}

// packs returns the packs that s needs, those of which it needs least first.
func (s *snapshot) packs() []packUse {
	index := map[objects.Digest]int{}
	var uses []packUse
	var last *pack
	at := 0
	for _, e := range s.entries {
		for i := range e.Blobs {
			b := &e.Blobs[i]
			if b.Pack != last {
				var ok bool
				if at, ok = index[b.Pack.ID]; !ok {
					at = len(uses)
					index[b.Pack.ID] = at
					uses = append(uses, packUse{pack: b.Pack})
				}
				last = b.Pack
			}
			uses[at].live += b.Stored
		}
	}
	for i := range uses { // copies of a file are there once
		uses[i].live = min(uses[i].live, uses[i].pack.Size)
	}
	slices.SortFunc(uses, func(a, b packUse) int { return cmp.Or(cmp.Compare(a.live, b.live), a.pack.ID.Compare(b.pack.ID)) })
	return uses
}

// choose returns the packs whose content is to be moved together, or nil.
func (c Compaction) choose(uses []packUse, cached func(objects.Digest) bool) map[objects.Digest]bool {
	under := func(limit int64) int {
		n, _ := slices.BinarySearchFunc(uses, limit, func(u packUse, limit int64) int { return cmp.Compare(u.live, limit) })
		return n
	}
	n, download := under(c.Little), true
	if n <= c.Small {
		if n, download = under(packTarget/2), false; len(uses) <= c.Packs || n <= c.Small {
			return nil
		}
	}
	from := map[objects.Digest]bool{}
	var total int64
	for _, u := range uses[:n] {
		if !download && !cached(u.pack.ID) {
			continue
		}
		if total += u.live; total > foldMost {
			break
		}
		from[u.pack.ID] = true
	}
	if len(from) < 2 {
		return nil
	}
	return from
}

// foldSmall moves content of snap together when it lies in too many packs. It is a service to later
// readers, so damage that it meets is not the commit's.
func (s *Store) foldSmall(ctx context.Context, tenant string, snap *snapshot) *fold {
	from := s.opts.Compaction.choose(snap.packs(), s.cache.has)
	if from == nil {
		return nil
	}
	f, err := s.move(ctx, tenant, from, snap)
	if err != nil {
		s.opts.Log.WarnContext(ctx, "content stays in many small packs", "tenant", tenant, "packs", len(from), "error", err)
		return nil
	}
	return f
}

// move copies what snaps need of packs into new ones, which are on their way to the store when it returns.
func (s *Store) move(ctx context.Context, tenant string, from map[objects.Digest]bool, snaps ...*snapshot) (*fold, error) {
	var wants []want
	to := map[objects.Digest]blob{}
	for _, snap := range snaps {
		for _, e := range snap.entries {
			for i := range e.Blobs {
				b := &e.Blobs[i]
				if _, ok := to[b.ID]; !ok && from[b.Pack.ID] {
					to[b.ID] = *b
					wants = append(wants, want{blob: b})
				}
			}
		}
	}
	p := s.newPacker(ctx, tenant, emptySnapshot.blobFinder(0))
	err := s.fetch(ctx, tenant, wants, func(_ int, _ want, data []byte) error {
		scratch := s.buffer()
		defer func() { s.buffers.Put(&scratch) }()
		_, err := p.add(data, scratch)
		return err
	})
	if err == nil {
		err = p.flush()
	}
	if err != nil {
		_ = p.finish() // the reason is known
		return nil, err
	}
	for id := range to {
		to[id], _ = p.lookup(id)
	}
	return &fold{from: from, to: to, wait: sync.OnceValue(p.finish)}, nil
}

// entry returns e, or a copy of it that finds its content where it is now.
func (f *fold) entry(e *entry) *entry {
	if e == nil {
		return nil
	}
	out := e
	for i, b := range e.Blobs {
		now, ok := f.to[b.ID]
		if !ok || !f.from[b.Pack.ID] {
			continue
		}
		if out == e {
			moved := *e
			moved.Blobs = slices.Clone(e.Blobs)
			out = &moved
		}
		out.Blobs[i] = now
	}
	return out
}

// onto returns sorted changes of on with the paths whose content has moved, and how many those are.
func (f *fold) onto(on *snapshot, changes []change) (all []change, moved int) {
	if f == nil {
		return changes, 0
	}
	own := make(map[string]bool, len(changes))
	for _, c := range changes {
		own[c.path] = true
		all = append(all, change{c.path, f.entry(c.entry)})
	}
	for _, e := range on.entries {
		if own[e.Path] {
			continue
		}
		if now := f.entry(e); now != e {
			all = append(all, change{e.Path, now})
			moved++
		}
	}
	sortChanges(all)
	return all, moved
}

// adopt notes that the tree's paths are those of snap where they hold the same.
func (t *Tree) adopt(snap *snapshot) {
	for _, e := range snap.entries {
		if n := t.nodes[e.Path]; n != nil && n.entry != nil && n.entry.same(e) {
			n.entry = e
		}
	}
}
