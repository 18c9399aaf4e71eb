package maintenance

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// CheckOptions says how much Check reads.
type CheckOptions struct {
	ReadData bool // download and verify content, instead of checking only that packs exist and have their sizes
	Part, Of int  // with ReadData, read only the Part-th of Of parts of the packs; if Of is 0, read all
}

// CheckResult is what Check found.
type CheckResult struct {
	Versions int
	Packs    int
	Read     int      // packs whose content was verified
	Problems []string // damaged objects
	Lost     []string // paths of the newest version that cannot be read
}

// Check verifies that every version of a workspace can be read: that manifests decode and match their digests, and that
// all packs exist and have the right size. It bypasses the cache and changes nothing. An error means that the check
// could not be completed.
func Check(ctx context.Context, r *repo.Repo, ref format.Ref, opts CheckOptions) (CheckResult, error) {
	var out CheckResult
	if err := ref.Check(); err != nil {
		return out, err
	}
	if err := check(ctx, r.Fresh(), ref, opts, &out); err != nil {
		return out, fmt.Errorf("check %s: %w", ref, err)
	}
	return out, nil
}

func check(ctx context.Context, r *repo.Repo, ref format.Ref, opts CheckOptions, out *CheckResult) error {
	refs, err := checkHistory(ctx, r, ref, out)
	if err != nil {
		return err
	}
	packs, err := newInspector(ctx, r, ref.Tenant) // after HEAD was read, so that the packs of its version are listed
	if err != nil {
		return err
	}
	wants := map[objects.Digest][]format.Blob{}
	wanted := map[location]bool{}
	var newest *format.EntrySet
	for i, at := range refs {
		out.Versions++
		v, err := r.Load(ctx, ref, at)
		if err := out.recordDamage(err); err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if i == 0 {
			newest = v.Set
		}
		for _, e := range v.Set.Entries {
			for _, b := range e.Blobs {
				if l := (location{b.Pack.ID, b.ID}); !wanted[l] {
					wanted[l] = true
					wants[b.Pack.ID] = append(wants[b.Pack.ID], b)
				}
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(wants), objects.Digest.Compare) {
		out.Packs++
		deep := opts.ReadData && (opts.Of < 2 || int(id[0])%opts.Of == opts.Part%opts.Of)
		if err := packs.verify(ctx, wants[id][0].Pack, wants[id], deep, nil); err != nil {
			return err
		}
		if why := packs.bad[id]; why != "" {
			out.Problems = append(out.Problems, format.PackKey(ref.Tenant, id)+": "+why)
		}
	}
	out.Read = packs.read
	if newest != nil {
		for _, e := range newest.Entries {
			if !packs.readable(e) {
				out.Lost = append(out.Lost, e.Path)
			}
		}
	}
	return nil
}

// checkHistory returns the history's manifests, without those that build on lost manifests.
func checkHistory(ctx context.Context, r *repo.Repo, ref format.Ref, out *CheckResult) ([]format.ManifestRef, error) {
	p, _, err := r.ReadPins(ctx, ref)
	if err := out.recordDamage(err); err != nil {
		return nil, err
	}
	h, etag, err := r.ReadHead(ctx, ref, "")
	if err := out.recordDamage(err); err != nil {
		return nil, err
	}
	if etag == "" && h.Generation == 0 {
		return nil, checkLostHead(ctx, r, ref, out)
	}
	var refs []format.ManifestRef
	err = r.Walk(ctx, ref, func(at format.ManifestRef, m *format.Manifest) bool {
		if !p.HasLostBase(m) {
			refs = append(refs, at)
		}
		return true
	})
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // not in the tree of errors
		all = joined.Unwrap()
	}
	for _, err := range all {
		if err := out.recordDamage(err); err != nil {
			return refs, err
		}
	}
	return refs, nil
}

// checkLostHead records that HEAD, which is missing, is lost if there are manifests.
func checkLostHead(ctx context.Context, r *repo.Repo, ref format.Ref, out *CheckResult) error {
	for info, err := range r.Bucket.List(ctx, ref.ManifestPrefix(), "") {
		if err != nil {
			return err
		}
		_, etag, err := r.ReadHead(ctx, ref, "") // the workspace may have been created in the meantime
		if etag == "" && err == nil {
			out.Problems = append(out.Problems, ref.HeadKey()+": missing, although "+info.Key+" exists")
		}
		return out.recordDamage(err)
	}
	return nil
}

// recordDamage records err once if it means damage, and returns any other error.
func (c *CheckResult) recordDamage(err error) error {
	if !format.IsDamage(err) {
		return err
	}
	if !slices.Contains(c.Problems, err.Error()) {
		c.Problems = append(c.Problems, err.Error())
	}
	return nil
}
