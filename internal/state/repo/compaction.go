package repo

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Compaction bounds over how many packs the newest version of a workspace is spread; zero fields take the defaults.
// Content is copied into new packs, and the next version refers to those. Older versions keep the old packs until
// garbage collection removes them.
type Compaction struct {
	Small  int   // a commit compacts when it builds on more small packs than this: 16
	Little int64 // a pack is small if fewer bytes of it are needed: 512 KiB
	Packs  int   // beyond this number of packs, a pack is small if less than half of PackTarget is needed: 64
	// Waste is how many bytes must be freed for garbage collection to compact packs of which less than half is
	// needed: 1 MiB.
	Waste int64
}

func (c Compaction) orDefaults() Compaction {
	return Compaction{
		Small: cmp.Or(c.Small, 16), Little: cmp.Or(c.Little, 512<<10),
		Packs: cmp.Or(c.Packs, 64), Waste: cmp.Or(c.Waste, 1<<20),
	}
}

// maxRelocated is how many bytes one commit moves at most. Every byte that small commits write is moved a few times
// at most, so that the cost of a commit stays in proportion to what it writes.
const maxRelocated = format.PackTarget

// Relocation is content that a commit moves to other packs. A nil Relocation moves nothing.
type Relocation struct {
	From map[objects.Digest]bool        // packs
	To   map[objects.Digest]format.Blob // where their content is now, by its digest
	Wait func() error                   // waits until the content is stored
}

// Stored waits until the moved content is stored. Only then may a HEAD refer to it.
func (f *Relocation) Stored() error {
	if f == nil {
		return nil
	}
	return f.Wait()
}

// choose returns the packs to compact, or nil.
func (c Compaction) choose(uses []format.PackUse, cached func(objects.Digest) bool) map[objects.Digest]bool {
	under := func(limit int64) int {
		n, _ := slices.BinarySearchFunc(uses, limit, func(u format.PackUse, limit int64) int {
			return cmp.Compare(u.Live, limit)
		})
		return n
	}
	n, download := under(c.Little), true
	if n <= c.Small {
		if n, download = under(format.PackTarget/2), false; len(uses) <= c.Packs || n <= c.Small {
			return nil
		}
	}
	from := map[objects.Digest]bool{}
	var total int64
	for _, u := range uses[:n] {
		if !download && !cached(u.Pack.ID) {
			continue
		}
		if total += u.Live; total > maxRelocated {
			break
		}
		from[u.Pack.ID] = true
	}
	if len(from) < 2 {
		return nil
	}
	return from
}

// compact moves content of set together if it is spread over too many packs. Errors are logged only: the commit does
// not depend on it.
func (r *Repo) compact(ctx context.Context, tenant string, set *format.EntrySet) *Relocation {
	from := r.Options.Compaction.choose(set.PackUses(), r.IsCached)
	if from == nil {
		return nil
	}
	f, err := r.Relocate(ctx, tenant, from, set)
	if err != nil {
		r.Options.Log.WarnContext(ctx, "compaction failed", "tenant", tenant, "packs", len(from), "error", err)
		return nil
	}
	return f
}

// Relocate copies what sets need of packs into new packs, whose upload may still run when it returns.
func (r *Repo) Relocate(
	ctx context.Context, tenant string, from map[objects.Digest]bool, sets ...*format.EntrySet,
) (*Relocation, error) {
	var wants []content.Want
	to := map[objects.Digest]format.Blob{}
	for _, set := range sets {
		for _, e := range set.Entries {
			for i := range e.Blobs {
				b := &e.Blobs[i]
				if _, ok := to[b.ID]; !ok && from[b.Pack.ID] {
					to[b.ID] = *b
					wants = append(wants, content.Want{Blob: b})
				}
			}
		}
	}
	p := r.NewPacker(ctx, tenant, format.EmptySet.BlobFinder(0))
	err := r.Fetch(ctx, tenant, wants, func(_ int, _ content.Want, data []byte) error {
		scratch := r.Buffer()
		defer func() { r.PutBuffer(&scratch) }()
		_, err := p.Add(data, scratch)
		return err
	})
	if err == nil {
		err = p.Flush()
	}
	if err != nil {
		_ = p.Finish() // err is the reason
		return nil, err
	}
	for id := range to {
		to[id], _ = p.Lookup(id)
	}
	return &Relocation{From: from, To: to, Wait: sync.OnceValue(p.Finish)}, nil
}

// entry returns e, or a copy that refers to where its content is now.
func (f *Relocation) entry(e *format.Entry) *format.Entry {
	if e == nil {
		return nil
	}
	out := e
	for i, b := range e.Blobs {
		now, ok := f.To[b.ID]
		if !ok || !f.From[b.Pack.ID] {
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

// onto adds to sorted changes of on the paths whose content has moved, and returns how many those are.
func (f *Relocation) onto(on *format.EntrySet, changes []format.Change) (all []format.Change, moved int) {
	if f == nil {
		return changes, 0
	}
	changed := make(map[string]bool, len(changes))
	for _, c := range changes {
		changed[c.Path] = true
		all = append(all, format.Change{Path: c.Path, Entry: f.entry(c.Entry)})
	}
	for _, e := range on.Entries {
		if changed[e.Path] {
			continue
		}
		if now := f.entry(e); now != e {
			all = append(all, format.Change{Path: e.Path, Entry: now})
			moved++
		}
	}
	format.SortChanges(all)
	return all, moved
}
