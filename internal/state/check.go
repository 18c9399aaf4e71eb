package state

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
)

// CheckOptions says how much Check reads.
type CheckOptions struct {
	ReadData bool // download and verify content, not only its index
	Part, Of int  // with ReadData: the Part-th of Of equal parts of the packs; 0 and 0: all
}

// Checked is what Check found.
type Checked struct {
	Versions int
	Packs    int
	Read     int      // packs whose content was verified
	Problems []string // empty: all is well
	Lost     []string // paths of the newest version that cannot be read
}

// Check verifies that every kept version of a workspace can be read: manifests
// decode and match their digests, all packs exist in their right size. It reads from the object store
// only, and changes nothing. An error means that the check could not be made.
func (s *Store) Check(ctx context.Context, ref Ref, opts CheckOptions) (Checked, error) {
	var out Checked
	if err := ref.check(); err != nil {
		return out, err
	}
	if err := s.fresh().check(ctx, ref, opts, &out); err != nil {
		return out, fmt.Errorf("check %s: %w", ref, err)
	}
	return out, nil
}

func (s *Store) check(ctx context.Context, ref Ref, opts CheckOptions, out *Checked) error {
	packs, err := s.newInspector(ctx, ref.Tenant)
	if err != nil {
		return err
	}
	links, err := s.checkHistory(ctx, ref, out)
	if err != nil {
		return err
	}
	wants := map[objects.Digest][]*blob{}
	seen := map[place]bool{}
	var newest *snapshot
	for i, l := range links {
		out.Versions++
		v, err := s.load(ctx, ref, l)
		if err := out.problem(err); err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if i == 0 {
			newest = v.snap
		}
		for _, e := range v.snap.entries {
			for j := range e.Blobs {
				b := &e.Blobs[j]
				if at := (place{b.Pack.ID, b.ID}); !seen[at] {
					seen[at] = true
					wants[b.Pack.ID] = append(wants[b.Pack.ID], b)
				}
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(wants), objects.Digest.Compare) {
		out.Packs++
		deep := opts.ReadData && (opts.Of < 2 || int(id[0])%opts.Of == opts.Part%opts.Of)
		if err := packs.look(ctx, wants[id][0].Pack, wants[id], deep, nil); err != nil {
			return err
		}
		if why := packs.bad[id]; why != "" {
			out.Problems = append(out.Problems, packKey(ref.Tenant, id)+": "+why)
		}
	}
	out.Read = packs.read
	if newest != nil {
		for _, e := range newest.entries {
			if !packs.whole(e) {
				out.Lost = append(out.Lost, e.Path)
			}
		}
	}
	return nil
}

// checkHistory returns the versions that are in the history, but for those that Repair has given up.
func (s *Store) checkHistory(ctx context.Context, ref Ref, out *Checked) ([]link, error) {
	p, _, err := s.readPins(ctx, ref)
	if err := out.problem(err); err != nil {
		return nil, err
	}
	h, etag, err := s.readHead(ctx, ref, "")
	if err := out.problem(err); err != nil {
		return nil, err
	}
	if etag == "" && h.Generation == 0 {
		for info, err := range s.objects.List(ctx, ref.key("m/"), "") {
			if err != nil {
				return nil, err
			}
			out.Problems = append(out.Problems, ref.headKey()+": missing, and there are manifests, as "+info.Key)
			break
		}
	}
	var links []link
	err = s.walk(ctx, ref, func(l link, m *manifest) bool {
		if !p.brokenBy(m) {
			links = append(links, l)
		}
		return true
	})
	if len(out.Problems) > 0 && isDamage(err) { // it is among them
		return links, nil
	}
	return links, out.problem(err)
}

// problem notes damage, and returns any other error.
func (c *Checked) problem(err error) error {
	if isDamage(err) {
		c.Problems = append(c.Problems, err.Error())
		return nil
	}
	return err
}
