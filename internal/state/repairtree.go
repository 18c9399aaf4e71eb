package state

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/codefleet/codefleet/internal/objects"
)

// readTree puts the newest version together.
func (r *repairer) readTree(ctx context.Context) error {
	r.tree = map[string]*entry{}
	r.at = len(r.line)
	for i, s := range r.line {
		if s.named == nil {
			continue
		}
		v, err := r.store.load(ctx, r.ref, s.link)
		if isDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		r.base, r.at = v, i
		for _, e := range v.snap.entries {
			r.tree[e.Path] = e
		}
		break
	}
	for _, s := range slices.Backward(r.line[:r.at]) {
		if s.named == nil {
			r.out.Unknown = append(r.out.Unknown, link{Name: s.name}.generation())
			if !r.bad[s.name] {
				r.out.Problems = append(r.out.Problems, r.ref.manifestKey(s.name)+": missing")
			}
			continue
		}
		for _, c := range s.man.changes {
			if r.tree[c.path] = c.entry; c.entry == nil {
				delete(r.tree, c.path)
			}
		}
	}
	return nil
}

// snapshot makes a tree of the paths: directories that only a lost manifest named are there again.
func (r *repairer) snapshot(ctx context.Context) (*snapshot, error) {
	for _, path := range slices.Sorted(maps.Keys(r.tree)) {
		for dir := parent(path); dir != "" && !r.tree[dir].isDir(); dir = parent(dir) {
			if e := r.tree[dir]; e != nil { // a lost generation made it a directory
				if err := r.lose(ctx, e); err != nil {
					return nil, err
				}
			}
			r.tree[dir] = &entry{Path: dir, Kind: kindDir, Mode: 0o755}
		}
	}
	entries := slices.SortedFunc(maps.Values(r.tree), func(a, b *entry) int { return cmp.Compare(a.Path, b.Path) })
	return newSnapshot(entries)
}

// readContent verifies the content of the tree, looks elsewhere for what is damaged, and leaves out the rest.
func (r *repairer) readContent(ctx context.Context) error {
	wants := map[objects.Digest][]*blob{}
	for _, e := range r.tree {
		for i := range e.Blobs {
			wants[e.Blobs[i].Pack.ID] = append(wants[e.Blobs[i].Pack.ID], &e.Blobs[i])
		}
	}
	r.fold = &fold{from: map[objects.Digest]bool{}, to: map[objects.Digest]blob{}, wait: func() error { return nil }}
	for _, id := range slices.SortedFunc(maps.Keys(wants), objects.Digest.Compare) {
		if err := r.packs.look(ctx, wants[id][0].Pack, wants[id], r.opts.ReadData, nil); err != nil {
			return err
		}
		if why := r.packs.bad[id]; why != "" {
			r.fold.from[id] = true
			r.out.Problems = append(r.out.Problems, packKey(r.ref.Tenant, id)+": "+why)
		}
	}
	if len(r.fold.from) == 0 {
		return nil
	}
	if err := r.findElsewhere(ctx, wants); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(r.tree)) {
		e := r.tree[path]
		if slices.ContainsFunc(e.Blobs, func(b blob) bool { _, ok := r.fold.to[b.ID]; return r.fold.from[b.Pack.ID] && !ok }) {
			delete(r.tree, path)
			if err := r.lose(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// findElsewhere finds content of damaged packs: in the index of other ones, or still in them.
func (r *repairer) findElsewhere(ctx context.Context, wants map[objects.Digest][]*blob) error {
	needed := map[objects.Digest]bool{}
	for id := range r.fold.from {
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
		if err != nil && !isDamage(err) {
			return err
		}
		blobs = slices.DeleteFunc(blobs, func(b blob) bool { return !needed[b.ID] })
		if len(blobs) == 0 {
			continue
		}
		if err := r.packs.look(ctx, blobs[0].Pack, pointers(blobs), true, nil); err != nil {
			return err
		}
		for _, b := range blobs {
			if !r.packs.lost[place{id, b.ID}] {
				r.fold.to[b.ID] = b
				delete(needed, b.ID)
			}
		}
	}
	return r.salvage(ctx, wants, needed)
}

// salvage copies content that can still be read from packs that are not whole.
func (r *repairer) salvage(ctx context.Context, wants map[objects.Digest][]*blob, needed map[objects.Digest]bool) error {
	p := r.store.newPacker(ctx, r.ref.Tenant, emptySnapshot.blobFinder(0))
	r.fold.wait = sync.OnceValue(p.finish)
	var found []objects.Digest
	for _, id := range slices.SortedFunc(maps.Keys(r.fold.from), objects.Digest.Compare) {
		if len(needed) == 0 {
			break
		}
		err := r.packs.look(ctx, wants[id][0].Pack, wants[id], true, func(b *blob, content []byte) error {
			if !needed[b.ID] {
				return nil
			}
			delete(needed, b.ID)
			found = append(found, b.ID)
			if r.opts.DryRun {
				r.fold.to[b.ID] = *b
				return nil
			}
			_, err := p.add(content, nil)
			return err
		})
		if err != nil {
			return errors.Join(err, p.finish())
		}
	}
	if err := p.flush(); err != nil || r.opts.DryRun {
		return err
	}
	for _, id := range found {
		r.fold.to[id], _ = p.lookup(id)
	}
	return nil
}

// lose notes that the new version is without e.
func (r *repairer) lose(ctx context.Context, e *entry) error {
	older, err := r.older(ctx, e.Path)
	if err != nil {
		return err
	}
	r.out.Lost = append(r.out.Lost, LostPath{e.Path, e.Size, older})
	return nil
}

// older returns the newest generation of the line that has a file at path which can be read, or 0.
func (r *repairer) older(ctx context.Context, path string) (int64, error) {
	for _, s := range r.line[min(r.at, len(r.line)):] {
		if s.named == nil {
			continue
		}
		v, err := r.store.load(ctx, r.ref, s.link)
		if isDamage(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		e := v.snap.find(path)
		if e != nil && !slices.ContainsFunc(e.Blobs, func(b blob) bool {
			return r.packs.listed[b.Pack.ID].Size != b.Pack.Size || r.packs.bad[b.Pack.ID] != ""
		}) {
			return s.man.header.Generation, nil
		}
	}
	return 0, nil
}

const recoveredDir = "recovered"

// findUnnamed makes files of content that only lost manifests named: that of packs that no manifest of the
// tenant refers to, and that are no older than the version that was found.
func (r *repairer) findUnnamed(ctx context.Context) error {
	if len(r.out.Unknown) == 0 && len(r.bad) == 0 && !r.headBad {
		return nil
	}
	named, err := r.namedPacks(ctx)
	if err != nil {
		return err
	}
	var bytes int64
	known := map[objects.Digest]bool{}
	for _, e := range r.tree {
		bytes += e.Size
		for _, b := range e.Blobs {
			known[b.ID] = true
		}
	}
	ids := slices.SortedFunc(maps.Keys(r.packs.listed), func(a, b objects.Digest) int {
		return cmp.Or(r.packs.listed[a].Modified.Compare(r.packs.listed[b].Modified), a.Compare(b))
	})
	for _, id := range ids {
		info := r.packs.listed[id]
		if named[id] || r.base != nil && info.Modified.Before(r.base.man.header.Time.Add(-clockSkew)) {
			continue
		}
		blobs, err := r.packs.index(ctx, id)
		if isDamage(err) {
			r.out.Problems = append(r.out.Problems, info.Key+": "+err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if len(blobs) == 0 {
			continue
		}
		if err := r.packs.look(ctx, blobs[0].Pack, pointers(blobs), true, nil); err != nil {
			return err
		}
		for _, b := range blobs {
			if known[b.ID] || r.packs.lost[place{id, b.ID}] {
				continue
			}
			known[b.ID] = true
			if bytes += b.Raw; bytes > r.store.opts.Quota.Bytes || len(r.tree) >= r.store.opts.Quota.Files {
				return nil
			}
			r.recovered(b, info.Modified.UnixNano())
		}
	}
	return nil
}

func pointers(blobs []blob) []*blob {
	out := make([]*blob, len(blobs))
	for i := range blobs {
		out[i] = &blobs[i]
	}
	return out
}

func (r *repairer) recovered(b blob, at int64) {
	const digits = 8
	dir := recoveredDir
	for n := 2; r.tree[dir] != nil && !r.tree[dir].isDir(); n++ {
		dir = fmt.Sprintf("%s-%d", recoveredDir, n)
	}
	path := dir + "/" + hex.EncodeToString(b.ID[:digits])
	if r.tree[path] != nil {
		return
	}
	r.tree[path] = &entry{Path: path, Kind: kindFile, Mode: 0o644, Size: b.Raw, MTime: at, Blobs: []blob{b}}
	r.out.Recovered = append(r.out.Recovered, path)
}

// namedPacks are the packs that any manifest of the tenant refers to.
func (r *repairer) namedPacks(ctx context.Context) (map[objects.Digest]bool, error) {
	packs := map[objects.Digest]bool{}
	prefix := r.ref.Tenant + "/w/"
	for info, err := range r.store.objects.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		parts := strings.Split(strings.TrimPrefix(info.Key, prefix), "/")
		if len(parts) != 3 || parts[1] != "m" {
			continue
		}
		ref := Ref{r.ref.Tenant, parts[0]}
		m := r.man[parts[2]]
		if ref != r.ref {
			if m, err = r.store.readNamed(ctx, ref, parts[2]); err != nil && !isDamage(err) {
				return nil, err
			}
		}
		if m != nil {
			for _, p := range m.man.header.Packs {
				packs[p.ID] = true
			}
		}
	}
	return packs, nil
}
