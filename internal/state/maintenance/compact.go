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

// compact commits newest versions again, so that they need neither packs that are mostly unused, nor packs and
// manifests that are not encrypted with the tenant's current key. It removes nothing: those objects become unreferenced
// once the older versions are removed.
func (c *collector) compact(ctx context.Context, workspaces []string) error {
	if c.opts.DryRun {
		return nil
	}
	var sets []*format.EntrySet
	var refs []format.Ref
	from := map[objects.Digest]bool{}
	var waste, total, rekeyed int64
	rekey := false
	for _, ws := range workspaces {
		ref := format.Ref{Tenant: c.tenant, Workspace: ws}
		v, err := c.repo.Current(ctx, ref, nil)
		if err != nil {
			return err
		}
		before := len(from)
		for _, u := range v.Set.PackUses() {
			p := c.packs[u.Pack.ID]
			switch {
			case p == nil || from[u.Pack.ID]:
			case u.Pack.Key != c.keyID:
				if rekeyed+u.Live <= maxRekeyed {
					rekey, from[u.Pack.ID] = true, true
					rekeyed += u.Live
				}
			case !p.pinned && p.live*2 < u.Pack.Size && total+p.live <= maxCompacted:
				from[u.Pack.ID] = true
				waste, total = waste+u.Pack.Size-p.live, total+p.live
			}
		}
		otherKey := c.hasOtherKey(ref, v)
		rekey = rekey || otherKey
		if otherKey || before < len(from) || usesAny(v.Set, from) {
			sets, refs = append(sets, v.Set), append(refs, ref)
		}
	}
	if waste < c.repo.Options.Compaction.Waste && !rekey {
		return nil
	}
	return c.compactPacks(ctx, from, refs, sets)
}

// usesAny reports whether a version needs any of the packs.
func usesAny(s *format.EntrySet, packs map[objects.Digest]bool) bool {
	return slices.ContainsFunc(s.PackUses(), func(u format.PackUse) bool { return packs[u.Pack.ID] })
}

// compactPacks copies the content that the entry sets need from the old packs (`from`) to new packs, and commits the
// new locations to the workspaces in `refs`.
func (c *collector) compactPacks(
	ctx context.Context, from map[objects.Digest]bool, refs []format.Ref, sets []*format.EntrySet,
) error {
	f, err := c.repo.Relocate(ctx, c.tenant, from, sets...)
	if err != nil {
		return fmt.Errorf("compact %d packs: %w", len(from), err)
	}
	defer func() { _ = f.Stored() }() // uploads must not outlive the call
	for _, ref := range refs {
		if err := c.commitRelocation(ctx, ref, f); err != nil {
			return fmt.Errorf("compact %d packs: %w", len(from), err)
		}
	}
	c.out.Compacted = len(from)
	return f.Stored()
}

// hasOtherKey reports whether a version needs manifests that are not encrypted with the tenant's current key.
func (c *collector) hasOtherKey(ref format.Ref, v *repo.Version) bool {
	if v.Head.Manifest == nil {
		return false
	}
	return c.otherKey[ref.ManifestKey(v.Head.Manifest.Name)] || slices.ContainsFunc(v.Manifest.Header.Chain,
		func(l format.Layer) bool { return c.otherKey[ref.ManifestKey(l.Name)] })
}

// rekeyTombstone encrypts a deleted workspace's pins and HEAD with the tenant's current key. HEAD comes last, because
// each garbage collection repeats this until HEAD has that key.
func (c *collector) rekeyTombstone(ctx context.Context, ref format.Ref, h format.Head, etag string) error {
	if c.opts.DryRun || h.Purging() {
		return nil
	}
	if _, pinsETag, err := c.repo.ReadPins(ctx, ref); err != nil {
		return err
	} else if pinsETag != "" {
		if err := c.repo.ChangePins(ctx, ref, func(*format.Pins) bool { return true }); err != nil {
			return err
		}
	}
	h.Commit = format.NewCommitID()
	if _, err := c.repo.SwapHead(ctx, ref, etag, &h); !errors.Is(err, objects.ErrConflict) {
		return err
	}
	return nil // a commit has created the workspace again
}

const compactMessage = "garbage collection: moved content out of packs that are mostly unused or have a different key"

// commitRelocation commits the new locations of moved content.
func (c *collector) commitRelocation(ctx context.Context, ref format.Ref, f *repo.Relocation) error {
	v, err := c.repo.Current(ctx, ref, nil)
	if err != nil || !usesAny(v.Set, f.From) && !c.hasOtherKey(ref, v) {
		return err
	}
	p := &repo.Proposal{
		Repo: c.repo, Ref: ref, Options: repo.CommitOptions{Message: compactMessage},
		Base: v, On: v, Relocation: f,
		Full: true, // a delta would still need the old packs
	}
	_, _, err = p.Run(ctx)
	if errors.Is(err, repo.ErrDeleted) {
		return nil
	}
	return err
}
