package maintenance

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

const recoveredDir = "recovered"

// recoverUnnamed adds files with the content that only lost manifests referred to. It searches the packs that are not
// older than the base and to which no manifest of the tenant refers. It stops when the quota is reached.
func (r *repairer) recoverUnnamed(ctx context.Context) error {
	if len(r.out.LostGenerations) == 0 && len(r.bad) == 0 && !r.headBad {
		return nil
	}
	named, err := r.namedPacks(ctx)
	if err != nil {
		return err
	}
	var bytes int64
	known := map[objects.Digest]bool{}
	for _, e := range r.entries {
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
		if named[id] || r.base != nil && info.Modified.Before(r.base.Manifest.Header.Time.Add(-format.ClockSkew)) {
			continue
		}
		blobs, err := r.packs.index(ctx, id)
		if format.IsDamage(err) {
			r.out.Problems = append(r.out.Problems, info.Key+": "+err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if len(blobs) == 0 {
			continue
		}
		if err := r.packs.verify(ctx, blobs[0].Pack, blobs, true, nil); err != nil {
			return err
		}
		for _, b := range blobs {
			if known[b.ID] || r.packs.lost[location{id, b.ID}] {
				continue
			}
			known[b.ID] = true
			if bytes += b.Raw; bytes > r.repo.Options.Quota.Bytes || len(r.entries) >= r.repo.Options.Quota.Files {
				return nil
			}
			r.addRecovered(b, info.Modified.UnixNano())
		}
	}
	return nil
}

// addRecovered adds a file with a blob's content.
func (r *repairer) addRecovered(b format.Blob, mtime int64) {
	const digits = 8
	dir := recoveredDir
	for n := 2; r.entries[dir] != nil && !r.entries[dir].IsDir(); n++ {
		dir = fmt.Sprintf("%s-%d", recoveredDir, n)
	}
	path := dir + "/" + hex.EncodeToString(b.ID[:digits])
	if r.entries[path] != nil {
		return
	}
	r.entries[path] = &format.Entry{
		Path: path, Kind: format.KindFile, Mode: 0o644, Size: b.Raw, MTime: mtime,
		Blobs: []format.Blob{b},
	}
	r.out.Recovered = append(r.out.Recovered, path)
}

// namedPacks returns the ids of the packs to which manifests of the tenant refer.
func (r *repairer) namedPacks(ctx context.Context) (map[objects.Digest]bool, error) {
	packs := map[objects.Digest]bool{}
	prefix := r.ref.Tenant + "/w/"
	for info, err := range r.repo.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		parts := strings.Split(strings.TrimPrefix(info.Key, prefix), "/")
		if len(parts) != 3 || parts[1] != "m" {
			continue
		}
		ref := format.Ref{Tenant: r.ref.Tenant, Workspace: parts[0]}
		m := r.readable[parts[2]]
		if ref != r.ref {
			if m, err = r.repo.ReadNamed(ctx, ref, parts[2]); err != nil && !format.IsDamage(err) {
				return nil, err
			}
		}
		if m != nil {
			for _, p := range m.Manifest.Header.Packs {
				packs[p.ID] = true
			}
		}
	}
	return packs, nil
}
