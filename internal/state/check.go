package state

import (
	"context"
	"errors"
	"fmt"
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
}

// Check verifies that every kept version of a workspace can be read: manifests
// decode and match their digests, all packs exist in their right size. An error
// means that the check could not be made.
func (s *Store) Check(ctx context.Context, ref Ref, opts CheckOptions) (Checked, error) {
	var out Checked
	if err := ref.check(); err != nil {
		return out, err
	}
	sizes := map[string]int64{}
	for info, err := range s.objects.List(ctx, ref.Tenant+"/p/", "") {
		if err != nil {
			return out, fmt.Errorf("check %s: %w", ref, err)
		}
		sizes[info.Key] = info.Size
	}
	var links []link
	err := s.walk(ctx, ref, func(l link, _ *manifest) bool {
		links = append(links, l)
		return true
	})
	if err := out.problem(err); err != nil {
		return out, fmt.Errorf("check %s: %w", ref, err)
	}
	byPack := map[Digest][]want{}
	seen := map[Digest]bool{}
	for _, l := range links {
		out.Versions++
		v, err := s.load(ctx, ref, l)
		if err := out.problem(err); err != nil {
			return out, fmt.Errorf("check %s: %w", ref, err)
		}
		if v == nil {
			continue
		}
		for _, e := range v.snap.entries {
			for i := range e.Blobs {
				b := &e.Blobs[i]
				if byPack[b.Pack.ID] == nil {
					out.pack(ref.Tenant, b.Pack, sizes)
				}
				if !seen[b.ID] {
					seen[b.ID] = true
					byPack[b.Pack.ID] = append(byPack[b.Pack.ID], want{blob: b})
				}
			}
		}
	}
	if !opts.ReadData {
		return out, nil
	}
	err = s.checkData(ctx, ref.Tenant, byPack, opts, &out)
	return out, err
}

// problem notes damage, and returns any other error.
func (c *Checked) problem(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) {
		c.Problems = append(c.Problems, err.Error())
		return nil
	}
	return err
}

func (c *Checked) pack(tenant string, p *pack, sizes map[string]int64) {
	c.Packs++
	key := packKey(tenant, p.ID)
	if size, ok := sizes[key]; !ok {
		c.Problems = append(c.Problems, key+": missing")
	} else if size != p.Size {
		c.Problems = append(c.Problems, fmt.Sprintf("%s: has %d bytes, want %d", key, size, p.Size))
	}
}

func (s *Store) checkData(ctx context.Context, tenant string, byPack map[Digest][]want, opts CheckOptions, out *Checked) error {
	for id, wants := range byPack {
		if opts.Of > 1 && int(id[0])%opts.Of != opts.Part%opts.Of {
			continue
		}
		out.Read++
		s.cache.drop(id) // what the store has, not what we remember
		err := s.fetch(ctx, tenant, wants, func(int, want, []byte) error { return nil })
		if err := out.problem(err); err != nil {
			return err
		}
	}
	return nil
}
