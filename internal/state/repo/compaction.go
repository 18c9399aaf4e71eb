package repo

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/content"
	"github.com/codefleet/codefleet/internal/state/format"
)

// Compaction bounds the number of packs over which a workspace's newest version is spread. Content is copied into new
// packs, to which the next version refers. The old packs stay until garbage collection removes them together with the
// older versions.
type Compaction struct {
	// A pack is small if moving what is needed of it costs fewer bytes than SmallBytes; the default is 512 KiB. If
	// there are more than MaxPacks packs (the default is 64), although no size class has too many small ones, the limit
	// is half of format.PackTarget instead.
	SmallBytes int64
	MaxPacks   int
	// MaxSmall is the number of small packs in one size class above which a commit compacts; the default is 16.
	MaxSmall int
	// Waste is how many bytes garbage collection must be able to free before it compacts packs of which less than half
	// is needed; the default is 1 MiB.
	Waste int64
}

func (c Compaction) orDefaults() Compaction {
	return Compaction{
		MaxSmall: cmp.Or(c.MaxSmall, 16), SmallBytes: cmp.Or(c.SmallBytes, 512<<10),
		MaxPacks: cmp.Or(c.MaxPacks, 64), Waste: cmp.Or(c.Waste, 1<<20),
	}
}

// maxRelocated bounds the bytes that one commit moves. Each byte that small commits write is moved only a few times, so
// a commit's cost stays proportional to its size.
const maxRelocated = format.PackTarget

// Relocation is content that a commit moves to other packs. A nil Relocation moves nothing.
type Relocation struct {
	From map[objects.Digest]bool        // ids of the old packs
	To   map[objects.Digest]format.Blob // new locations, by the content's digest
	Wait func() error                   // waits until the content is stored

	Began time.Time // when the first upload began
}

// Stored waits until the moved content is stored. Only then may a HEAD refer to it.
func (r *Relocation) Stored() error {
	if r == nil {
		return nil
	}
	return r.Wait()
}

// choose returns the packs to compact, or nil. uses are in ascending order of Cost. If no size class below SmallBytes
// has too many packs, only cached packs are compacted.
func (c Compaction) choose(uses []format.PackUse, cached func(objects.Digest) bool) map[objects.Digest]bool {
	under := func(limit int64) []format.PackUse {
		n, _ := slices.BinarySearchFunc(uses, limit, func(u format.PackUse, limit int64) int {
			return cmp.Compare(u.Cost(), limit)
		})
		return uses[:n]
	}
	chosen, download := c.crowded(under(c.SmallBytes)), true
	if len(chosen) == 0 && len(uses) > c.MaxPacks {
		if chosen, download = under(format.PackTarget/2), false; len(chosen) <= c.MaxSmall {
			return nil
		}
	}
	from := map[objects.Digest]bool{}
	var total int64
	for _, u := range chosen {
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

// crowded returns the packs up to the last size class that has too many. The pack into which smaller ones are moved
// counts too. Sizes of one class differ by less than the factor MaxSmall, so moved content ends up in a higher class.
func (c Compaction) crowded(small []format.PackUse) []format.PackUse {
	chosen, moved := 0, int64(0)
	for at := 0; at < len(small); {
		class, end, sum := c.class(small[at].Cost()), at, int64(0)
		for ; end < len(small) && c.class(small[end].Cost()) == class; end++ {
			sum += small[end].Cost()
		}
		n := end - at
		if moved > 0 && c.class(moved) == class {
			n++
		}
		if n > c.MaxSmall {
			for _, u := range small[chosen:at] {
				sum += u.Cost()
			}
			chosen, moved = end, moved+sum
		}
		at = end
	}
	return small[:chosen]
}

// class returns the size class of a cost.
func (c Compaction) class(cost int64) (class int) {
	for ; cost > 1; cost /= int64(max(2, c.MaxSmall)) {
		class++
	}
	return class
}

// compact moves content of set into fewer packs if it is spread over too many. Errors are only logged, because the
// commit does not depend on it.
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

// Relocate copies into new packs what sets need of the packs whose ids are in `from`. The uploads may still run when
// it returns.
func (r *Repo) Relocate(
	ctx context.Context, tenant string, from map[objects.Digest]bool, sets ...*format.EntrySet,
) (*Relocation, error) {
	began := time.Now()
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
		_ = p.Finish() // err is the cause
		return nil, err
	}
	for id := range to {
		to[id], _ = p.Lookup(id)
	}
	return &Relocation{From: from, To: to, Wait: sync.OnceValue(p.Finish), Began: began}, nil
}

// relocate returns e, or a copy of e with the new locations of its content.
func (r *Relocation) relocate(e *format.Entry) *format.Entry {
	if e == nil {
		return nil
	}
	out := e
	for i, b := range e.Blobs {
		location, ok := r.To[b.ID]
		if !ok || !r.From[b.Pack.ID] {
			continue
		}
		if out == e {
			moved := *e
			moved.Blobs = slices.Clone(e.Blobs)
			out = &moved
		}
		out.Blobs[i] = location
	}
	return out
}

// addMoved returns changes with the new locations of their content, and also the other paths of `on` whose content has
// moved; moved is the number of these.
func (r *Relocation) addMoved(on *format.EntrySet, changes []format.Change) (all []format.Change, moved int) {
	if r == nil {
		return changes, 0
	}
	changed := make(map[string]bool, len(changes))
	for _, c := range changes {
		changed[c.Path] = true
		all = append(all, format.Change{Path: c.Path, Entry: r.relocate(c.Entry)})
	}
	for _, e := range on.Entries {
		if changed[e.Path] {
			continue
		}
		if relocated := r.relocate(e); relocated != e {
			all = append(all, format.Change{Path: e.Path, Entry: relocated})
			moved++
		}
	}
	format.SortChanges(all)
	return all, moved
}
