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
	ReadData bool // download and verify content, not only its index
	Part, Of int  // with ReadData: read only the Part-th of Of equal parts of the packs; 0 and 0: all
}

// CheckResult is what Check found.
type CheckResult struct {
	Versions int
	Packs    int
	Read     int      // packs whose content was verified
	Problems []string // damaged objects
	Lost     []string // paths of the newest version that cannot be read
}

// Check verifies that every version of a workspace can be read: manifests decode and match their digests, and all
// packs exist in the right size. It bypasses the cache and changes nothing. An error means that the check could not
// be made.
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
	packs, err := newInspector(ctx, r, ref.Tenant)
	if err != nil {
		return err
	}
	refs, err := checkHistory(ctx, r, ref, out)
	if err != nil {
		return err
	}
	wants := map[objects.Digest][]*format.Blob{}
	seen := map[location]bool{}
	var newest *format.EntrySet
	for i, l := range refs {
		out.Versions++
		v, err := r.Load(ctx, ref, l)
		if err := out.problem(err); err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if i == 0 {
			newest = v.Set
		}
		for _, e := range v.Set.Entries {
			for j := range e.Blobs {
				b := &e.Blobs[j]
				if at := (location{b.Pack.ID, b.ID}); !seen[at] {
					seen[at] = true
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

// checkHistory returns the manifests of the history, without those that build on lost manifests.
func checkHistory(ctx context.Context, r *repo.Repo, ref format.Ref, out *CheckResult) ([]format.ManifestRef, error) {
	p, _, err := r.ReadPins(ctx, ref)
	if err := out.problem(err); err != nil {
		return nil, err
	}
	h, etag, err := r.ReadHead(ctx, ref, "")
	if err := out.problem(err); err != nil {
		return nil, err
	}
	if etag == "" && h.Generation == 0 {
		for info, err := range r.Bucket.List(ctx, ref.ManifestPrefix(), "") {
			if err != nil {
				return nil, err
			}
			out.Problems = append(out.Problems, ref.HeadKey()+": missing, but manifests exist, such as "+info.Key)
			break
		}
	}
	var refs []format.ManifestRef
	err = r.Walk(ctx, ref, func(l format.ManifestRef, m *format.Manifest) bool {
		if !p.BrokenBy(m) {
			refs = append(refs, l)
		}
		return true
	})
	if len(out.Problems) > 0 && format.IsDamage(err) { // it is among the problems
		return refs, nil
	}
	return refs, out.problem(err)
}

// problem records damage, and returns any other error.
func (c *CheckResult) problem(err error) error {
	if format.IsDamage(err) {
		c.Problems = append(c.Problems, err.Error())
		return nil
	}
	return err
}
