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

// RepairOptions says how much Repair reads.
type RepairOptions struct {
	ReadData bool // verify all content, not only of packs that are missing or have another size
	DryRun   bool // report, change nothing
}

// LostPath is a path whose content is gone.
type LostPath struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Older int64  `json:"older,omitempty"` // the newest generation that has it in a form that can be read; 0: none
}

// RepairResult is what Repair found and did.
type RepairResult struct {
	Commit    repo.Commit // NoChange: the newest version could be read as it was
	Problems  []string    // damaged objects
	Lost      []LostPath  // the new version is without them
	Unknown   []int64     // generations that are lost, and with them what only they changed
	Recovered []string    // files of content that no name is known for
}

// Repair makes the newest version of a workspace readable when objects of it are lost or damaged, as a
// new commit that has all that is still there:
//
//   - HEAD is lost: the newest manifest that has all of its packs takes its place.
//   - Manifests are lost: the version is put together from the newest one that can be read and the deltas
//     after it. What only a lost manifest named is content without a name: it is found by the indexes
//     of packs, and becomes a file in recovered/ (a large one in pieces).
//   - Packs are lost or damaged: content that other packs have too, or that can still be read, is used.
//     Files without theirs are left out and named.
//
// The history passes over versions that cannot be read. Nothing is removed or overwritten but HEAD and the pins, by a
// swap, so Repair may be interrupted anywhere and run again. A workspace that is well stays as it is.
func Repair(ctx context.Context, r *repo.Repo, ref format.Ref, opts RepairOptions) (RepairResult, error) {
	if err := ref.Check(); err != nil {
		return RepairResult{}, err
	}
	p := &repairer{repo: r.Fresh(), ref: ref, opts: opts, readable: map[string]*repo.NamedManifest{}, bad: map[string]bool{}, known: map[int64]string{}}
	if err := p.run(ctx); err != nil {
		return p.out, fmt.Errorf("repair %s: %w", ref, err)
	}
	return p.out, nil
}

type repairer struct {
	repo *repo.Repo
	ref  format.Ref
	opts RepairOptions
	out  RepairResult

	head     format.Head
	etag     string
	headBad  bool                           // missing or damaged
	names    []string                       // of manifests in the store, oldest first
	readable map[string]*repo.NamedManifest // those that can be read
	bad      map[string]bool                // those that cannot
	known    map[int64]string               // names of manifests that others refer to, by generation
	line     []manifestStep                 // newest first
	base     *repo.Loaded                   // the newest version of the line that can be read; nil: none
	at       int                            // of base in the line
	tree     map[string]*format.Entry
	packs    *inspector
	fold     *repo.Relocation // of damaged packs
}

// manifestStep is one manifest of the history, which may be unreadable.
type manifestStep struct {
	name string
	*repo.NamedManifest
}

func (r *repairer) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.survey, r.readTree, r.readContent, r.findUnnamed} {
		if err := part(ctx); err != nil {
			return err
		}
		if r.head.Deleted || len(r.line) == 0 && !r.headBad { // there is nothing to repair
			r.out.Commit.NoChange = true
			return nil
		}
	}
	if err := r.commit(ctx); err != nil || r.opts.DryRun {
		return err
	}
	return r.bridge(ctx)
}

// survey reads HEAD and all manifests, and puts them in order.
func (r *repairer) survey(ctx context.Context) (err error) {
	if r.packs, err = newInspector(ctx, r.repo, r.ref.Tenant); err != nil {
		return err
	}
	prefix := r.ref.ManifestPrefix()
	for info, err := range r.repo.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		name := info.Key[len(prefix):]
		r.names = append(r.names, name)
		found, err := r.repo.ReadNamed(ctx, r.ref, name)
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
	if err := r.readHead(ctx); err != nil {
		return err
	}
	r.follow()
	return nil
}

func (r *repairer) readHead(ctx context.Context) error {
	obj, err := r.repo.Bucket.Get(ctx, r.ref.HeadKey(), objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	if err == nil {
		r.etag = obj.ETag
		if r.head, err = format.DecodeHead(r.ref, r.repo.Keys(r.ref.Tenant), obj.Data); err == nil || !format.IsDamage(err) {
			return err
		}
	} else if len(r.names) == 0 {
		return nil // a workspace that never was, or is forgotten
	}
	r.headBad = true
	r.out.Problems = append(r.out.Problems, r.ref.HeadKey()+": "+err.Error())
	r.head = format.Head{Born: 1}
	for _, name := range r.names {
		r.head.Generation = max(r.head.Generation, format.ManifestRef{Name: name}.Generation())
	}
	f, _, err := r.repo.ReadFloor(ctx, r.ref.Tenant)
	r.head.Generation = max(r.head.Generation, f.Generation)
	return err
}

// follow finds the line of manifests that led to the newest version, also past those that cannot be read.
func (r *repairer) follow() {
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
		r.line = append(r.line, s)
		if s.NamedManifest == nil {
			name = r.before(format.ManifestRef{Name: name}.Generation())
			continue
		}
		for _, l := range s.Manifest.Header.Chain {
			r.known[l.Generation()] = l.Name
		}
		name = ""
		if p := s.Manifest.Header.Parent; p != nil && p.Generation() < s.Ref.Generation() {
			name = p.Name
		}
	}
	for last := len(r.line) - 1; last > 0 && r.line[last].NamedManifest == nil && !r.bad[r.line[last].name] && !r.inChain(r.line[last].name); last-- {
		r.line = r.line[:last] // what was collected
	}
}

// newest is the last manifest that can be read and has all of its own packs, or else that can be read.
func (r *repairer) newest() string {
	best := ""
	for _, name := range slices.Backward(r.names) {
		if r.readable[name] == nil {
			continue
		}
		if best == "" {
			best = name
		}
		if !slices.ContainsFunc(r.readable[name].Manifest.Header.Packs, func(p format.PackRef) bool { return r.packs.listed[p.ID].Size != p.Size }) {
			return name
		}
	}
	return best
}

// before is the name of the manifest of the generation before, or of the newest one that can be read and is older.
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
