package maintenance

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// readEntries rebuilds the newest version from the lineage.
func (r *repairer) readEntries(ctx context.Context) error {
	r.entries = map[string]*format.Entry{}
	r.at = len(r.lineage)
	for i, s := range r.lineage {
		if s.NamedManifest == nil {
			continue
		}
		v, err := r.repo.Load(ctx, r.ref, s.Ref)
		if format.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		r.base, r.at = v, i
		for _, e := range v.Set.Entries {
			r.entries[e.Path] = e
		}
		break
	}
	for _, s := range slices.Backward(r.lineage[:r.at]) {
		if s.NamedManifest == nil {
			r.out.LostGenerations = append(r.out.LostGenerations, format.ManifestRef{Name: s.name}.Generation())
			if !r.bad[s.name] {
				r.out.Problems = append(r.out.Problems, r.ref.ManifestKey(s.name)+": missing")
			}
			continue
		}
		for _, c := range s.Manifest.Changes {
			if r.entries[c.Path] = c.Entry; c.Entry == nil {
				delete(r.entries, c.Path)
			}
		}
	}
	return nil
}

// rebuilt returns the rebuilt version. It adds directories that only a lost manifest had.
func (r *repairer) rebuilt(ctx context.Context) (*format.EntrySet, error) {
	for _, path := range slices.Sorted(maps.Keys(r.entries)) {
		for dir := format.ParentDir(path); dir != "" && !r.entries[dir].IsDir(); dir = format.ParentDir(dir) {
			if e := r.entries[dir]; e != nil { // it became a directory in a lost generation
				if err := r.reportLost(ctx, e); err != nil {
					return nil, err
				}
			}
			r.entries[dir] = format.NewDir(dir)
		}
	}
	entries := slices.SortedFunc(maps.Values(r.entries),
		func(a, b *format.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return format.NewEntrySet(entries)
}

// readContent verifies the content of the version, looks in other packs for content that is damaged, and drops files
// whose content is lost.
func (r *repairer) readContent(ctx context.Context) error {
	wants := map[objects.Digest][]format.Blob{}
	for _, e := range r.entries {
		for _, b := range e.Blobs {
			wants[b.Pack.ID] = append(wants[b.Pack.ID], b)
		}
	}
	r.relocation = &repo.Relocation{
		From: map[objects.Digest]bool{}, To: map[objects.Digest]format.Blob{},
		Wait: func() error { return nil },
	}
	for _, id := range slices.SortedFunc(maps.Keys(wants), objects.Digest.Compare) {
		if err := r.packs.verify(ctx, wants[id][0].Pack, wants[id], r.opts.ReadData, nil); err != nil {
			return err
		}
		if why := r.packs.bad[id]; why != "" {
			r.relocation.From[id] = true
			r.out.Problems = append(r.out.Problems, format.PackKey(r.ref.Tenant, id)+": "+why)
		}
	}
	if len(r.relocation.From) == 0 {
		return nil
	}
	if err := r.findElsewhere(ctx, wants); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[path]
		if slices.ContainsFunc(e.Blobs,
			func(b format.Blob) bool { _, ok := r.relocation.To[b.ID]; return r.relocation.From[b.Pack.ID] && !ok }) {
			delete(r.entries, path)
			if err := r.reportLost(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// findElsewhere finds the content of damaged packs in other packs, and salvages the rest.
func (r *repairer) findElsewhere(ctx context.Context, wants map[objects.Digest][]format.Blob) error {
	needed := map[objects.Digest]bool{}
	for id := range r.relocation.From {
		for _, b := range wants[id] {
			needed[b.ID] = true
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(r.packs.listed), objects.Digest.Compare) {
		if len(needed) == 0 {
			break
		}
		if r.packs.bad[id] != "" || r.packs.listed[id].Size == 0 {
			continue
		}
		blobs, err := r.packs.index(ctx, id)
		if err != nil && !format.IsDamage(err) {
			return err
		}
		blobs = slices.DeleteFunc(blobs, func(b format.Blob) bool { return !needed[b.ID] })
		if len(blobs) == 0 {
			continue
		}
		if err := r.packs.verify(ctx, blobs[0].Pack, blobs, true, nil); err != nil {
			return err
		}
		for _, b := range blobs {
			if !r.packs.lost[location{id, b.ID}] {
				r.relocation.To[b.ID] = b
				delete(needed, b.ID)
			}
		}
	}
	return r.salvage(ctx, wants, needed)
}

// salvage copies content that can still be read out of damaged packs.
func (r *repairer) salvage(
	ctx context.Context, wants map[objects.Digest][]format.Blob, needed map[objects.Digest]bool,
) error {
	p := r.repo.NewPacker(ctx, r.ref.Tenant, format.EmptySet.BlobFinder(0))
	r.relocation.Wait = sync.OnceValue(p.Finish)
	var found []objects.Digest
	for _, id := range slices.SortedFunc(maps.Keys(r.relocation.From), objects.Digest.Compare) {
		if len(needed) == 0 {
			break
		}
		err := r.packs.verify(ctx, wants[id][0].Pack, wants[id], true, func(b format.Blob, content []byte) error {
			if !needed[b.ID] {
				return nil
			}
			delete(needed, b.ID)
			found = append(found, b.ID)
			if r.opts.DryRun {
				r.relocation.To[b.ID] = b
				return nil
			}
			_, err := p.Add(content, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := p.Flush(); err != nil || r.opts.DryRun {
		return err
	}
	for _, id := range found {
		r.relocation.To[id], _ = p.Lookup(id)
	}
	return nil
}

// reportLost reports that the new version does not have e.
func (r *repairer) reportLost(ctx context.Context, e *format.Entry) error {
	older, err := r.findOlder(ctx, e.Path)
	if err != nil {
		return err
	}
	r.out.Lost = append(r.out.Lost, LostPath{e.Path, e.Size, older})
	return nil
}

// findOlder returns the newest generation of the lineage in which a path can be read, or 0.
func (r *repairer) findOlder(ctx context.Context, path string) (int64, error) {
	for _, s := range r.lineage[min(r.at, len(r.lineage)):] {
		if s.NamedManifest == nil {
			continue
		}
		v, err := r.repo.Load(ctx, r.ref, s.Ref)
		if format.IsDamage(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		e := v.Set.Find(path)
		if e != nil && !slices.ContainsFunc(e.Blobs, func(b format.Blob) bool {
			return r.packs.listed[b.Pack.ID].Size != b.Pack.Size || r.packs.bad[b.Pack.ID] != ""
		}) {
			return s.Manifest.Header.Generation, nil
		}
	}
	return 0, nil
}
