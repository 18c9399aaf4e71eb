package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// empty moves what newest versions need out of packs of which less than half is needed by any kept
// version, and out of those that do not have the tenant's key; and writes newest versions anew of which manifests
// do not have it. Nothing is removed: once what older versions are made of has left, nothing refers to those objects.
func (c *collector) empty(ctx context.Context, workspaces []string) error {
	if c.opts.DryRun {
		return nil
	}
	var snaps []*format.Snapshot
	var refs []format.Ref
	from := map[objects.Digest]bool{}
	var waste, total, rekeyed int64
	rekey := false
	for _, ws := range workspaces {
		v, err := c.repo.Current(ctx, format.Ref{Tenant: c.tenant, Workspace: ws}, nil)
		if err != nil {
			return err
		}
		before := len(from)
		for _, u := range v.Snapshot.PackUses() {
			p := c.packs[u.Pack.ID]
			switch {
			case p == nil || from[u.Pack.ID]:
			case u.Pack.Key != c.key:
				if rekeyed+u.Live <= rekeyMost {
					rekey, from[u.Pack.ID] = true, true
					rekeyed += u.Live
				}
			case !p.pinned && p.live*2 < u.Pack.Size && total+p.live <= emptyMost:
				from[u.Pack.ID] = true
				waste, total = waste+u.Pack.Size-p.live, total+p.live
			}
		}
		old := c.hasOtherKey(format.Ref{Tenant: c.tenant, Workspace: ws}, v)
		rekey = rekey || old
		if old || before < len(from) || sharesAny(v.Snapshot, from) {
			snaps, refs = append(snaps, v.Snapshot), append(refs, format.Ref{Tenant: c.tenant, Workspace: ws})
		}
	}
	if waste < c.repo.Options.Compaction.Waste && !rekey {
		return nil
	}
	return c.emptyPacks(ctx, from, refs, snaps)
}

func sharesAny(s *format.Snapshot, packs map[objects.Digest]bool) bool {
	for _, u := range s.PackUses() {
		if packs[u.Pack.ID] {
			return true
		}
	}
	return false
}

func (c *collector) emptyPacks(ctx context.Context, from map[objects.Digest]bool, refs []format.Ref, snaps []*format.Snapshot) error {
	f, err := c.repo.Relocate(ctx, c.tenant, from, snaps...)
	if err != nil {
		return fmt.Errorf("empty %d packs: %w", len(from), err)
	}
	defer func() { _ = f.Stored() }()
	for _, ref := range refs {
		if err := c.commitFold(ctx, ref, f); err != nil {
			return fmt.Errorf("empty %d packs: %w", len(from), err)
		}
	}
	c.out.Emptied = len(from)
	return f.Stored()
}

// hasOtherKey reports whether a version needs manifests that do not have the tenant's key.
func (c *collector) hasOtherKey(ref format.Ref, v *repo.Version) bool {
	if v.Head.Manifest == nil {
		return false
	}
	return slices.ContainsFunc(append(slices.Clip(v.Manifest.Header.Chain), *v.Head.Manifest), func(l format.ManifestRef) bool {
		return c.otherKey[ref.ManifestKey(l.Name)]
	})
}

// rekeyTombstone writes what is left of a deleted workspace anew, with the tenant's key. HEAD is last: as long as it is as it
// was, this is repeated.
func (c *collector) rekeyTombstone(ctx context.Context, ref format.Ref, h format.Head, etag string) error {
	if c.opts.DryRun || h.Purging() {
		return nil
	}
	if _, has, err := c.repo.ReadPins(ctx, ref); err != nil {
		return err
	} else if has != "" {
		if err := c.repo.ChangePins(ctx, ref, func(*format.Pins) {}); err != nil {
			return err
		}
	}
	h.Commit = format.NewCommitID()
	if _, err := c.repo.SwapHead(ctx, ref, etag, &h); !errors.Is(err, objects.ErrConflict) {
		return err
	}
	return nil // somebody uses it again
}

// commitFold commits that content has moved, and nothing else.
func (c *collector) commitFold(ctx context.Context, ref format.Ref, f *repo.Relocation) error {
	v, err := c.repo.Current(ctx, ref, nil)
	if err != nil || !sharesAny(v.Snapshot, f.From) && !c.hasOtherKey(ref, v) {
		return err
	}
	p := &repo.Proposal{
		Repo: c.repo, Ref: ref, Options: repo.CommitOptions{Message: "collection: content moved out of packs that are mostly unused, or have another key"},
		Base: v, On: v, Relocation: f,
		Full: true, // a chain would keep the old packs
	}
	_, _, err = p.Run(ctx)
	if errors.Is(err, repo.ErrDeleted) {
		return nil
	}
	return err
}
