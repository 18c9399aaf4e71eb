package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/repo"
)

// RepairOptions says how much Repair reads, and whether it changes anything.
type RepairOptions struct {
	ReadData bool // verify the content of packs, instead of checking only that they exist and have their sizes
	DryRun   bool // report, but change nothing
}

// LostPath is a path whose content is lost.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // newest generation in which the path can be read, or 0
}

// RepairResult is what Repair found and did.
type RepairResult struct {
	Commit          repo.Commit // NoChange is set if the newest version could be read
	Problems        []string    // damaged objects
	Lost            []LostPath  // paths that the new version does not have
	LostGenerations []int64     // generations whose changes are lost
	Recovered       []string    // files with recovered content whose original paths are unknown
}

// Repair makes the newest version of a workspace readable after objects were lost or damaged, by committing everything
// that is left:
//
//   - If HEAD is lost, it is rebuilt from the newest manifest that has all of its packs.
//   - If manifests are lost, the version is rebuilt from the newest readable one and the deltas after it. Content whose
//     path only a lost manifest had is found through the indexes of packs, and becomes a file in recovered/; a large
//     file becomes several.
//   - If packs are lost or damaged, content that can still be read, or that other packs have, is used. Files whose
//     content is lost are left out and reported.
//
// Afterwards the history skips versions that cannot be read. Repair overwrites only HEAD and the pins, by atomic swaps,
// so it may be interrupted at any time and run again. It does not change an undamaged workspace.
func Repair(ctx context.Context, r *repo.Repo, ref format.Ref, opts RepairOptions) (RepairResult, error) {
	if err := ref.Check(); err != nil {
		return RepairResult{}, err
	}
	p := &repairer{
		repo: r.Fresh(), ref: ref, opts: opts,
		readable: map[string]*repo.NamedManifest{}, bad: map[string]bool{}, known: map[int64]string{},
	}
	defer func() { _ = p.relocation.Stored() }() // uploads must not outlive the call
	if err := p.run(ctx); err != nil {
		return p.out, fmt.Errorf("repair %s: %w", ref, err)
	}
	return p.out, nil
}

// repairer is one run of Repair.
type repairer struct {
	repo *repo.Repo
	ref  format.Ref
	opts RepairOptions
	out  RepairResult

	head       format.Head
	etag       string
	headBad    bool                           // HEAD is missing or damaged
	names      []string                       // names of all manifests in the store, the oldest first
	readable   map[string]*repo.NamedManifest // by name
	bad        map[string]bool                // names of manifests that cannot be read
	known      map[int64]string               // names of manifests that other objects refer to, by generation
	lineage    []manifestStep                 // manifests that lead to the newest version, newest first
	base       *repo.Loaded                   // newest version of the lineage that can be read, or nil
	at         int                            // index of base in the lineage
	entries    map[string]*format.Entry       // the rebuilt version, by path
	packs      *inspector
	relocation *repo.Relocation // out of damaged packs
}

// manifestStep is a manifest of the lineage. NamedManifest is nil if it cannot be read.
type manifestStep struct {
	name string
	*repo.NamedManifest
}

func (r *repairer) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.survey, r.readEntries, r.readContent, r.recoverUnnamed} {
		if err := step(ctx); err != nil {
			return err
		}
		if r.head.Deleted || len(r.lineage) == 0 && !r.headBad { // nothing to repair
			r.out.Commit.NoChange = true
			return nil
		}
	}
	if err := r.commit(ctx); err != nil || r.opts.DryRun {
		return err
	}
	return r.recordGaps(ctx)
}

// survey reads HEAD and all manifests, and finds the lineage. It reads HEAD before it lists objects: otherwise HEAD
// could refer to objects that were stored after the listing, and these would seem to be lost.
func (r *repairer) survey(ctx context.Context) error {
	headErr, err := r.readHead(ctx)
	if err != nil {
		return err
	}
	if r.packs, err = newInspector(ctx, r.repo, r.ref.Tenant); err != nil {
		return err
	}
	prefix := r.ref.ManifestPrefix()
	for info, err := range r.repo.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		name := info.Key[len(prefix):]
		found, err := r.repo.ReadNamed(ctx, r.ref, name)
		if errors.Is(err, objects.ErrNotFound) {
			continue // garbage collection has removed it since the listing
		}
		r.names = append(r.names, name)
		switch {
		case format.IsDamage(err):
			r.bad[name] = true
			r.out.Problems = append(r.out.Problems, err.Error())
		case err != nil:
			return err
		default:
			r.readable[name] = found
		}
	}
	if errors.Is(headErr, objects.ErrNotFound) && len(r.names) > 0 {
		if headErr, err = r.readHead(ctx); err != nil {
			return err
		}
		if headErr == nil { // the workspace was created after HEAD was read
			r.names, r.out.Problems = nil, nil
			return r.survey(ctx)
		}
	}
	if headErr != nil {
		if err := r.rebuildHead(ctx, headErr); err != nil {
			return err
		}
	}
	r.findLineage()
	return nil
}

// readHead reads HEAD. damage says why it cannot be read if it is missing or damaged.
func (r *repairer) readHead(ctx context.Context) (damage, err error) {
	obj, err := r.repo.Bucket.Get(ctx, r.ref.HeadKey(), objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	r.etag = obj.ETag
	r.head, err = r.repo.DecodeHead(r.ref, obj.Data)
	if format.IsDamage(err) {
		return err, nil
	}
	return nil, err
}

// rebuildHead makes a HEAD whose generation is not below any that the workspace may have had, so that the repair's
// commit is above all of them. It does nothing if the workspace does not exist. completeHead sets the other fields.
func (r *repairer) rebuildHead(ctx context.Context, damage error) error {
	if r.etag == "" && len(r.names) == 0 {
		return nil // the workspace does not exist, or was purged
	}
	r.headBad = true
	r.out.Problems = append(r.out.Problems, r.ref.HeadKey()+": "+damage.Error())
	r.head = format.Head{Born: 1}
	for _, name := range r.names {
		r.head.Generation = max(r.head.Generation, format.ManifestRef{Name: name}.Generation())
	}
	if len(r.names) == 0 { // HEAD may have been a tombstone whose manifests were collected
		r.head.Generation = time.Now().Unix() // no workspace commits more often than once per second
	}
	r.head.Generation += format.MaxCarriedManifests // HEAD may have carried later generations
	f, _, err := r.repo.ReadFloor(ctx, r.ref.Tenant)
	r.head.Generation = max(r.head.Generation, f.Generation)
	return err
}

// findLineage follows parents from HEAD. It skips manifests that cannot be read.
func (r *repairer) findLineage() {
	name := ""
	for _, t := range r.head.Recent {
		r.known[t.Generation] = t.Manifest()
	}
	if r.head.Manifest != nil {
		name = r.head.Manifest.Name
	} else if r.headBad {
		name = r.newest()
	}
	for name != "" {
		s := manifestStep{name, r.readable[name]}
		r.lineage = append(r.lineage, s)
		if s.NamedManifest == nil {
			name = r.before(format.ManifestRef{Name: name}.Generation())
			continue
		}
		for _, at := range s.Manifest.Header.Chain {
			r.known[at.Generation()] = at.Name
		}
		name = ""
		if p := s.Manifest.Header.Parent; p != nil && p.Generation() < s.Ref.Generation() {
			name = p.Name
		}
	}
	for last := len(r.lineage) - 1; last > 0; last-- {
		if s := r.lineage[last]; s.NamedManifest != nil || r.bad[s.name] || r.inChain(s.name) {
			break
		}
		r.lineage = r.lineage[:last] // removed by garbage collection
	}
}

// newest returns the name of the newest readable manifest whose packs all exist. If there is none, it returns the name
// of the newest readable manifest, or "".
func (r *repairer) newest() string {
	best := ""
	missing := func(p format.PackRef) bool { return r.packs.listed[p.ID].Size != p.Size }
	for _, name := range slices.Backward(r.names) {
		if r.readable[name] == nil {
			continue
		}
		best = cmp.Or(best, name)
		if !slices.ContainsFunc(r.readable[name].Manifest.Header.Packs, missing) {
			return name
		}
	}
	return best
}

// before returns the name of the previous generation's manifest. If that is unknown, it returns the name of the newest
// readable manifest that is older than generation, or "".
func (r *repairer) before(generation int64) string {
	if name := r.known[generation-1]; name != "" {
		return name
	}
	for _, name := range slices.Backward(r.names) {
		if r.readable[name] != nil && (format.ManifestRef{Name: name}).Generation() < generation {
			return name
		}
	}
	return ""
}
